"""Hugging Face: a transformers.Trainer follows a plan of one stage.

    trainer = Trainer(model, TrainingArguments(gradient_accumulation_steps=8, ...), ...)
    ergon.trainers.huggingface.follow(trainer, plan="plan.json")
    trainer.train()

A step is what an optimizer step takes: compute_loss() and accelerator.backward() of each
accumulated batch. The last step of an epoch, where it has fewer batches, runs in a pause, as
evaluations do.
"""

from __future__ import annotations

import os
from typing import Any

from transformers import TrainerCallback

from .._library import Error
from ._follower import Follower, Place, check_signature


def follow(trainer: Any, plan: str | os.PathLike[str] | None = None, agree: bool = True,
           **options: Any) -> Follower:
    """On every rank, before train(). The follower's hook is None until then."""
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
