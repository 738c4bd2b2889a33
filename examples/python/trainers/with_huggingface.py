"""transformers.Trainer by a plan of one stage and 8 microbatches, on a CPU as it stands.

    python3 with_huggingface.py plan.json observe
"""
import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

import ergon.trainers.huggingface

model = LlamaForCausalLM(LlamaConfig(vocab_size=256, hidden_size=64, intermediate_size=128,
                                     num_hidden_layers=2, num_attention_heads=4))
tokens = [{"input_ids": row, "labels": row} for row in torch.randint(256, (70, 32))]
arguments = TrainingArguments(output_dir="out", per_device_train_batch_size=2, num_train_epochs=2,
                              gradient_accumulation_steps=8, report_to=[], save_strategy="no",
                              eval_strategy="epoch")
trainer = Trainer(model, arguments, train_dataset=tokens, eval_dataset=tokens[:4])
follower = ergon.trainers.huggingface.follow(trainer, plan=sys.argv[1], mode=sys.argv[2])
trainer.train()
print(f"{follower.hook.stats.steps} steps, {follower.hook.stats.passes} passes")
