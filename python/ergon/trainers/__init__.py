"""Trainers that follow a plan by ergon.Hook. Each module has one call:

    ergon.trainers.pipelining.follow(schedule, plan="plan.json")   torch.distributed.pipelining
    ergon.trainers.megatron.install(plan="plan.json")              Megatron-Core, before pretrain()
    ergon.trainers.deepspeed.follow(engine, plan="plan.json")      DeepSpeed's PipelineEngine
    callbacks=[ergon.trainers.lightning.Follow("plan.json")]       Lightning
    ergon.trainers.huggingface.follow(trainer, plan="plan.json")   transformers.Trainer

All take the options of ergon.Hook (mode, method, point, ...) and `agree`: the ranks of several
pipelines agree on late ones; every rank of the job must then follow the plan. Each returns, or is,
a Follower. Each module imports its trainer; `import ergon` imports none.
"""

from ._follower import Follower

__all__ = ["Follower"]
