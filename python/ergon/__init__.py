"""ergon: train large models within a budget of time, energy, power and memory.

>>> import ergon
>>> job = ergon.Job("job.yaml", microbatches=16)
>>> frontier = job.optimize()                      # the ways to run an iteration
>>> frontier.select(deadline=5.2)                  # one of them
>>> frontier.plan.save("plan.json")
>>> layouts = ergon.Job("job.yaml", engine="megatron-a100").plan(gpus=64)

In a notebook, frontiers, plans, layouts, memory and simulations show the pages that the command
line writes. Times are seconds, energies joules, powers watts and sizes bytes; unknown values are
NaN or None. If the library refuses a call, it raises Error with one sentence: the problem, and what
was expected. Warnings go to the logger "ergon".
"""

from . import ask
from ._library import Error, version
from .clusters import SimulationResult, Simulations, simulate
from .hook import Hook, HookChoice, HookClass, HookStats
from .jobs import (Job, JobInfo, Layout, Layouts, Memory, MemoryInfo, Model, ModelInfo, ModelWork,
                   StageMemory)
from .meter import Measurement, Meter, MeterGpu, Window, WindowGpu, WindowResult, ZeusMonitor
from .monitor import Monitor, PictureRun
from .plans import METHODS, Frontier, Pass, Plan, PlanInfo, Point, combine
from .ranks import launch
from .traces import KernelCategory, KernelGpu, Kernels, kernels
from .studies import Study, StudyCounts, characterize
from .train import Train, TrainStats
from .tune import Tune, TunePoint, TuneStats

__version__ = version()

__all__ = [
    "METHODS", "Error", "Frontier", "Hook", "HookChoice", "HookClass", "HookStats", "Job",
    "JobInfo", "KernelCategory", "KernelGpu", "Kernels", "Layout", "Layouts", "Measurement",
    "Memory", "MemoryInfo", "Meter", "MeterGpu", "Model", "ModelInfo", "ModelWork", "Monitor",
    "Pass", "PictureRun", "Plan", "PlanInfo", "Point", "SimulationResult", "Simulations",
    "StageMemory", "Study", "StudyCounts", "Train", "TrainStats", "Tune", "TunePoint", "TuneStats",
    "Window", "WindowGpu", "WindowResult", "ZeusMonitor", "ask", "characterize", "combine",
    "kernels", "launch", "simulate", "version",
]
