"""What each stage of a job needs, and what would make it fit: python3 memory.py JOB.yaml"""
import sys

import ergon

memory = ergon.Job(sys.argv[1]).memory()
for i, stage in enumerate(memory.stages):
    print(f"stage {i}: {stage.layers} layers, {stage.peak_bytes / 2**30:.2f} of "
          f"{stage.gpu_bytes / 2**30:.2f} GiB, {stage.activations_bytes / 2**30:.2f} of them "
          "activations")
print("it fits" if memory.fits else memory.info.change)
