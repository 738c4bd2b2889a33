"""A job file with another key, checked: python3 job.py JOB.yaml [KEY VALUE]"""
import json
import sys

import ergon

job = ergon.Job(sys.argv[1])
if len(sys.argv) > 2:
    job.set(sys.argv[2], json.loads(sys.argv[3]))
info = job.info
print(f"{info.name}: {info.model} on {info.gpus} {info.gpu}")
print(f"tensor {info.tensor}, context {info.context}, pipeline {info.pipeline}, data {info.data}, "
      f"{info.batch} sequences of {info.sequence} tokens")
try:
    job.check()
    print("it can run as it is")
except ergon.Error as problem:
    print(f"it cannot run as it is: {problem}")
