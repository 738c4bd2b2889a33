"""What a model is, and what a step of training costs: python3 model.py [NAME or config.json]"""
import sys

import ergon

sequences, sequence = 64, 4096
model = ergon.Model(sys.argv[1] if len(sys.argv) > 1 else "llama-3.2-3b")
work = model.work(sequences * sequence, sequence)
print(f"{model.info.architecture}: {model.info.parameters / 1e9:.2f} billion parameters in "
      f"{model.info.layers} layers")
print(f"a step of {sequences} sequences: {work.training_flops / 1e15:.3f} PFLOP")
print(f"  of the forward pass {300 * work.linear_flops / work.training_flops:.1f} % in linear "
      f"layers, {300 * work.attention_flops / work.training_flops:.1f} % in attention")
