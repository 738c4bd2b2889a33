"""Lightning by a plan of one stage and 8 microbatches, on a CPU as it stands.

    python3 with_lightning.py plan.json observe
"""
import sys

import torch
from lightning.pytorch import LightningModule, Trainer

import ergon.trainers.lightning


class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)

    def training_step(self, batch, index):
        return torch.nn.functional.mse_loss(self.layer(batch), batch)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


follow = ergon.trainers.lightning.Follow(plan=sys.argv[1], mode=sys.argv[2])
trainer = Trainer(max_epochs=2, accumulate_grad_batches=8, callbacks=[follow], logger=False,
                  enable_checkpointing=False)
trainer.fit(Model(), torch.utils.data.DataLoader(torch.randn(32 * 4, 64), batch_size=4))
print(f"{follow.hook.stats.steps} steps, {follow.hook.stats.passes} passes")
