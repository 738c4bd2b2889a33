"""Megatron-LM by a plan: runs its pretrain_gpt.py as it is, from the folder of Megatron-LM.

    torchrun ... with_megatron.py pretrain_gpt.py --pipeline-model-parallel-size 2 ...
"""
import os
import runpy
import sys

import ergon.trainers.megatron

ergon.trainers.megatron.install(plan=os.environ.get("PLAN", "plan.json"))
del sys.argv[0]
sys.path.insert(0, os.getcwd())
runpy.run_path(sys.argv[0], run_name="__main__")
