"""Lightning: a Trainer follows a plan of one stage.

    follow = ergon.trainers.lightning.Follow("plan.json")
    trainer = Trainer(accumulate_grad_batches=8, callbacks=[follow])

A step is an optimizer step: a forward and a backward pass of each accumulated batch. The last
batches of an epoch, if too few for a step, run in a pause.
"""

from __future__ import annotations

import os
from typing import Any

try:
    from lightning.pytorch import Callback
except ImportError:
    from pytorch_lightning import Callback

from .._library import Error
from ..hook import KINDS
from ._follower import Follower, Place


class Follow(Follower, Callback):
    """A callback; `hook` is None before fit()."""

    def __init__(self, plan: str | os.PathLike[str] | None = None, agree: bool = True,
                 **options: Any) -> None:
        super().__init__("Lightning", plan, agree, **options)
        self._in_step = self._short = self._validates = False

    def on_fit_start(self, trainer: Any, module: Any) -> None:
        if not module.automatic_optimization:
            raise Error("a module with manual optimization has its own backward passes; "
                        "expected automatic_optimization, or ergon.Hook in its training_step()")
        if self.hook is None:
            self.open(Place(microbatches=trainer.accumulate_grad_batches,
                            replica=trainer.global_rank, replicas=trainer.world_size))

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
        if not self._in_step:
            left = trainer.num_training_batches - batch_idx
            self._short = left < trainer.accumulate_grad_batches
            if self._short:
                self.pause()
            else:
                self.hook.step_begin()
            self._in_step = True
        self.begin(KINDS["forward"])

    def on_before_backward(self, trainer: Any, module: Any, loss: Any) -> None:
        self.end()
        self.begin(KINDS["backward"])

    def on_after_backward(self, trainer: Any, module: Any) -> None:
        self.end()

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any,
                           batch_idx: int) -> None:
        if (batch_idx + 1) % trainer.accumulate_grad_batches == 0 or trainer.is_last_batch:
            self._in_step = False
            if self._short:
                self.resume()
            else:
                self.hook.step_end()

    def on_validation_start(self, trainer: Any, module: Any) -> None:
        # It may come within a step, when no pass of the plan runs before the step's end.
        self._validates = self.hook is not None and not self._in_step
        if self._validates:
            self.pause()

    def on_validation_end(self, trainer: Any, module: Any) -> None:
        if self._validates:
            self.resume()

    def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
        self.close()
