"""Hugging Face: a transformers.Trainer follows a plan of one stage.

    trainer = Trainer(model, TrainingArguments(gradient_accumulation_steps=8, ...), ...)
    ergon.trainers.huggingface.follow(trainer, plan="plan.json")
    trainer.train()

A step is an optimizer step: compute_loss() and accelerator.backward() of each accumulated batch. If
the last step of an epoch has fewer batches, it runs in a pause, like evaluations.

Without a plan, one knob of the GPUs can be tuned during training:

    trainer = Trainer(model, ..., callbacks=[ergon.trainers.huggingface.TuneCallback("power")])
"""

from __future__ import annotations

import atexit
import logging
import os
from typing import Any

from transformers import TrainerCallback

from .._library import Error
from ..tune import Tune
from ._follower import Follower, Place, _cuda, _gpu, check_signature


def follow(trainer: Any, plan: str | os.PathLike[str] | None = None, agree: bool = True,
           **options: Any) -> Follower:
    """Call it on every rank, before train(). The follower's hook is None until then."""
    if trainer.args.n_gpu > 1:
        raise Error(f"this process trains on {trainer.args.n_gpu} GPUs; expected one process for "
                    "each GPU, as torchrun starts them")
    check_signature(getattr(trainer, "training_step", None), "training_step", "model", "inputs")
    check_signature(getattr(trainer, "compute_loss", None), "compute_loss", "model", "inputs")
    check_signature(getattr(trainer, "evaluation_loop", None), "evaluation_loop", "dataloader")
    check_signature(getattr(trainer.accelerator, "backward", None), "backward", "loss")
    follower = Follower("transformers.Trainer", plan, agree, **options)
    trainer.add_callback(_Steps(trainer, follower))
    return follower


class _Steps(TrainerCallback):
    def __init__(self, trainer: Any, follower: Follower) -> None:
        self.trainer, self.follower, self.short = trainer, follower, False

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        trainer, follower = self.trainer, self.follower
        if follower.hook is not None:
            return
        follower.open(Place(microbatches=args.gradient_accumulation_steps,
                            replica=args.process_index, replicas=args.world_size))
        trainer.compute_loss = follower.around(trainer.compute_loss, "forward")
        trainer.accelerator.backward = follower.around(trainer.accelerator.backward, "backward")
        trainer.evaluation_loop = follower.paused()(trainer.evaluation_loop)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        runs = getattr(self.trainer, "current_gradient_accumulation_steps", None)
        self.short = runs is not None and runs < args.gradient_accumulation_steps
        if self.short:
            self.follower.pause()
        else:
            self.follower.hook.step_begin()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.short:
            self.follower.resume()
        else:
            self.follower.hook.step_end()


class TuneCallback(TrainerCallback):
    """Tunes the power limit or the SM clock while the trainer runs; options as of ergon.Tune. The
    end of training restores the previous setting. The first process of a machine tunes the GPUs of
    all its processes, which get the same value. If tuning fails, training continues with a warning.
    """

    def __init__(self, knob: str = "power", **options: Any) -> None:
        self.tune: Tune | None = None  #: on the process that tunes; its stats have the results
        self._knob, self._options, self._tunes = knob, options, False

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        ranks = int(os.environ.get("LOCAL_WORLD_SIZE", args.world_size))
        if args.world_size > ranks:
            raise Error(f"the job has {args.world_size} processes, {ranks} of them on this machine; "
                        "expected a job of one machine, since steps of others would be measured")
        options = dict(self._options)
        cuda = _cuda()
        if cuda and "gpus" not in options:
            options["gpus"] = self._gpus_of_all(_gpu(cuda) or "", args.world_size)
        if args.process_index > 0:
            return
        if self.tune is None:
            self.tune = Tune(self._knob, **options)
            atexit.register(self.tune.close)
        self._tunes = True

    def _gpus_of_all(self, mine: str, ranks: int) -> str | None:
        """The GPUs separated by commas; None: those of CUDA_VISIBLE_DEVICES. All processes call
        it."""
        gpus = [mine]
        if ranks > 1:
            parts = Follower("transformers.Trainer").gather(mine.encode().ljust(64))
            gpus = [part.decode().strip() for part in parts]
        return ",".join(dict.fromkeys(gpus)) if all(gpus) else None

    def _attempt(self, act: Any) -> None:
        try:
            act()
        except Error as problem:
            logging.getLogger("ergon").warning("%s; training continues without tuning", problem)
            self._tunes = False

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._tunes:
            self._attempt(self.tune.step_begin)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._tunes:
            cuda = _cuda()
            if cuda:
                cuda.synchronize()  # the step ends when the GPU has finished
            self._attempt(self.tune.step_end)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._tunes = False
        if self.tune is not None:
            self.tune.close()
