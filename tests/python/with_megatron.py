"""Megatron-Core's schedules on CPUs by a plan: with_megatron.py PLAN MODE CHUNKS

    torchrun --nproc-per-node 4 with_megatron.py plan.json follow 1

2 stages x 2 pipelines of linear layers, 8 microbatches. Megatron-Core makes its tensors on the GPU
and synchronizes it: here the CPU takes its place.
"""
import sys
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

torch.cuda.current_device = lambda: "cpu"
torch.cuda.synchronize = lambda *_: None
import ergon.trainers.megatron  # noqa: E402
from megatron.core import parallel_state  # noqa: E402
from megatron.core.pipeline_parallel import get_forward_backward_func  # noqa: E402
from megatron.core.transformer import TransformerConfig  # noqa: E402

SIZE, BATCH, MICROBATCHES = 64, 4, 8
plan, mode, chunks = sys.argv[1], sys.argv[2], int(sys.argv[3])


class OnCpu(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device")).startswith("cuda"):
            kwargs["device"] = "cpu"
        return function(*args, **kwargs)


class Chunk(torch.nn.Linear):
    def __init__(self, config, vp_stage):
        super().__init__(SIZE, SIZE)
        self.config, self.vp_stage, self.given = config, vp_stage, None
        self.model_type = SimpleNamespace(value=1)

    def set_input_tensor(self, given):
        self.given = given[0] if isinstance(given, list) else given


def forward(data, model):
    given = model.given if model.given is not None else torch.randn(BATCH, 1, SIZE)
    return model(given), lambda out: (out.square().mean(), {"loss": out.detach().square().mean()})


dist.init_process_group("gloo")
parallel_state.initialize_model_parallel(
    1, 2, chunks if chunks > 1 else None, create_gloo_process_groups=True)
follower = ergon.trainers.megatron.install(plan=plan, mode=mode)
config = TransformerConfig(num_layers=2 * chunks, hidden_size=SIZE, num_attention_heads=1,
                           pipeline_model_parallel_size=2, pipeline_dtype=torch.float32,
                           virtual_pipeline_model_parallel_size=chunks if chunks > 1 else None,
                           batch_p2p_comm=False, deallocate_pipeline_outputs=False)
model = [Chunk(config, chunk if chunks > 1 else None) for chunk in range(chunks)]
with OnCpu():
    for step in range(17):
        for forward_only in (False, True) if step % 8 == 0 else (False,):
            get_forward_backward_func()(
                forward_step_func=forward, data_iterator=[None] * chunks if chunks > 1 else None,
                model=model if chunks > 1 else model[0], num_microbatches=MICROBATCHES,
                seq_length=BATCH, micro_batch_size=1, forward_only=forward_only)
stats = follower.hook.stats
print(f"rank {dist.get_rank()}: {stats.steps} steps, {stats.passes} passes, "
      f"{stats.clock_changes} changes of clock")
assert (stats.steps, stats.passes) == (17, 17 * 2 * MICROBATCHES * chunks), stats
dist.destroy_process_group()
