"""The adapters of ergon.trainers on trainers that are made up, with the real ones' signatures:
test_trainers.py SOURCE_DIR LIBRARY ERGON FAKE_NVML FAKE_CUDA. tests/python/ has the real ones."""
import contextlib
import ctypes
import importlib
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import time
import unittest
from unittest import mock

sys.dont_write_bytecode = True
SOURCE, LIBRARY, ERGON, FAKE_NVML, FAKE_CUDA = sys.argv[1:6]
FOLDER = tempfile.TemporaryDirectory()
WORK = pathlib.Path(FOLDER.name)
(WORK / "gpus").write_text(f"gpus 2\ntail -trainers{os.getpid()}\nlog {WORK}/log\n"
                           f"gpu * power 0=500\ngpu 1 uuid GPU-second{os.getpid()}\n")
os.environ.update(ERGON_LIBRARY=LIBRARY, ERGON_NVML=FAKE_NVML, ERGON_LIBCUDA=FAKE_CUDA,
                  ERGON_FAKE_NVML=str(WORK / "gpus"))
for variable in ("CUDA_VISIBLE_DEVICES", "RANK", "SLURM_PROCID"):
    os.environ.pop(variable, None)
sys.path.insert(0, SOURCE + "/python")

import ergon  # noqa: E402

PLAN, INTERLEAVED, ONE = (f"{WORK}/{name}.json" for name in ("plan", "interleaved", "one"))
MICROBATCHES = 4


def make_plan(path, stages, *options):
    rows = ["stage,instruction,frequency,time,energy"]
    for stage in range(stages):
        slower = 1 + 0.2 * (stage % 2)
        rows += [f"{stage},forward,1410,{0.010 * slower},4", f"{stage},forward,1200,0.0125,3",
                 f"{stage},backward,1410,{0.020 * slower},8", f"{stage},backward,1200,0.025,6"]
    (WORK / "profile.csv").write_text("\n".join(rows) + "\n")
    subprocess.run([ERGON, "frontier", WORK / "profile.csv", "-m", str(MICROBATCHES), "-p", "80",
                    *options, "--plan", path, "-q"], stdout=subprocess.DEVNULL, check=True)


make_plan(PLAN, 2)
make_plan(INTERLEAVED, 4, "--schedule", "interleaved", "--virtual-stages", "2")
make_plan(ONE, 1)


def module(name, **members):
    """A module, and the packages that it lies in."""
    made = types.ModuleType(name)
    vars(made).update(members)
    sys.modules[name] = made
    if "." in name:
        package, _, last = name.rpartition(".")
        if package not in sys.modules:
            module(package)
        setattr(sys.modules[package], last, made)
    return made


def adapter(name):
    """ergon.trainers.NAME, imported anew."""
    sys.modules.pop(f"ergon.trainers.{name}", None)
    return importlib.import_module(f"ergon.trainers.{name}")


def order_1f1b(stage, stages, microbatches):
    """As Schedule1F1B of torch has it."""
    warm = min(microbatches, stages - stage)
    passes = [("forward", i) for i in range(warm)]
    for i in range(microbatches):
        passes.append(("backward", i))
        if warm + i < microbatches:
            passes.append(("forward", warm + i))
    return passes


class Ranks:
    """torch.distributed of `world` ranks, where the others say what `others` makes of mine."""

    def __init__(self, world=1, others=lambda rank, mine: mine):
        self.world, self.others, self.groups, self.gathered = world, others, [], []
        self.torch = module(
            "torch", version=types.SimpleNamespace(cuda=None), uint8=object(),
            empty=lambda count, dtype, device: Tensor([0] * count),
            tensor=lambda values, dtype, device: Tensor(values))
        self.torch.distributed = module(
            "torch.distributed", is_available=lambda: True, is_initialized=lambda: True,
            get_rank=lambda: 0, get_world_size=lambda: world, new_group=self.new_group,
            all_gather=self.all_gather, get_process_group_ranks=lambda group: group)

    def new_group(self, backend):
        self.groups.append(backend)
        return backend

    def all_gather(self, parts, mine, group):
        self.gathered.append((len(mine.values), group))
        for rank, part in enumerate(parts):
            part.values = list(self.others(rank, bytes(mine.values)) if rank else mine.values)


class Tensor:
    def __init__(self, values):
        self.values = list(values)

    def tolist(self):
        return self.values


class Trainers(unittest.TestCase):
    def setUp(self):
        for name in [one for one in sys.modules if one.partition(".")[0] in (
                "torch", "megatron", "deepspeed", "lightning", "transformers")]:
            del sys.modules[name]
        self.said = io.StringIO()
        stderr = contextlib.redirect_stderr(self.said)
        stderr.__enter__()
        self.addCleanup(stderr.__exit__, None, None, None)
        self.ranks = Ranks()

    def close(self, follower):
        self.addCleanup(follower.close)
        return follower

    def saw(self, follower, steps, passes):
        stats = follower.hook.stats
        self.assertEqual((stats.steps, stats.passes, stats.trouble), (steps, passes, ""))


class Imports(unittest.TestCase):
    def test_ergon_imports_no_trainer(self):
        said = subprocess.run(
            [sys.executable, "-c", "import sys, ergon\n"
             "assert not any(one.startswith('ergon.trainers') for one in sys.modules)\n"
             "import ergon.trainers\n"
             "print(sorted({'torch', 'megatron', 'deepspeed', 'lightning', 'transformers'} & "
             "set(sys.modules)))"],
            stdout=subprocess.PIPE, env=dict(os.environ, PYTHONPATH=SOURCE + "/python"), text=True)
        self.assertEqual(said.stdout, "[]\n")


# ---- torch.distributed.pipelining ----


class Stage:
    def __init__(self, index, rank, size, calls):
        self.stage_index, self.group_rank, self.group_size = index, rank, size
        self.group, self.calls = list(range(size)), calls

    def forward_one_chunk(self, fwd_chunk_id, args, kwargs=None, save_forward_output=True):
        self.calls.append(("forward", self.stage_index, fwd_chunk_id))
        return args

    def backward_one_chunk(self, bwd_chunk_id, loss=None, full_backward=True, last_backward=False):
        self.calls.append(("backward", self.stage_index, bwd_chunk_id))

    def backward_weight_one_chunk(self, bwd_chunk_id, last_backward=False):
        self.calls.append(("weight", self.stage_index, bwd_chunk_id))


class Schedule1F1B:
    def __init__(self, stage, microbatches=MICROBATCHES):
        self._stage, self._n_microbatches, self._has_backward = stage, microbatches, True
        self.splits = False

    def step(self, *args):
        for kind, i in order_1f1b(self._stage.group_rank, self._stage.group_size,
                                  self._n_microbatches):
            if kind == "forward":
                assert self._stage.forward_one_chunk(i, args, {}) == args
            elif self._has_backward:
                self._stage.backward_one_chunk(bwd_chunk_id=i, loss=None,
                                               full_backward=not self.splits)
                if self.splits:
                    self._stage.backward_weight_one_chunk(i)
        return "output"

    def eval(self, *args):
        self._has_backward = False
        try:
            return self.step(*args)
        finally:
            self._has_backward = True


class Interleaved:
    """Runs the passes of a plan, which are those of ScheduleInterleaved1F1B."""

    def __init__(self, stages):
        self._stages, self._n_microbatches, self._has_backward = stages, MICROBATCHES, True

    def step(self):
        for one in ergon.Plan(INTERLEAVED).passes(self._stages[0].group_rank):
            run = getattr(self._stages[one.chunk], f"{one.direction}_one_chunk")
            run(one.microbatch, *([()] if one.direction == "forward" else []))


class Pipelining(Trainers):
    def setUp(self):
        super().setUp()
        self.calls = []
        self.pipelining = adapter("pipelining")

    def schedule(self, stage=1, microbatches=MICROBATCHES):
        return Schedule1F1B(Stage(stage, stage, 2, self.calls), microbatches)

    def follow(self, schedule, plan=PLAN, **options):
        options.setdefault("gpu", "0")
        return self.close(self.pipelining.follow(schedule, plan, **options))

    def test_steps_of_both_stages(self):
        for stage in (0, 1):
            del self.calls[:]
            schedule = self.schedule(stage)
            follower = self.follow(schedule)
            self.assertEqual(schedule.step("x"), "output")
            self.assertEqual(schedule.eval("x"), "output")
            self.assertEqual(schedule.step("x"), "output")
            self.saw(follower, 2, 4 * MICROBATCHES)
            self.assertEqual(len(self.calls), 5 * MICROBATCHES)
            self.assertEqual(follower.hook.stats.lease, "direct")
            follower.close()
        self.assertIn(f"follow, {PLAN}: 2 stages x 1 chunks x {MICROBATCHES} microbatches, "
                      "1 pipelines, markers host", self.said.getvalue())

    def test_chunks(self):
        for rank in (0, 1):
            schedule = Interleaved([Stage(rank + 2 * chunk, rank, 2, self.calls)
                                    for chunk in (0, 1)])
            follower = self.follow(schedule, INTERLEAVED, mode="observe")
            schedule.step()
            self.saw(follower, 1, 4 * MICROBATCHES)
            self.assertEqual({one.chunk for one in follower.hook.classes}, {0, 1})

    def test_backward_passes_in_two(self):
        schedule = self.schedule()
        schedule.splits = True
        follower = self.follow(schedule)
        schedule.step("x")
        self.saw(follower, 1, 3 * MICROBATCHES)
        self.assertIn("backward-weight", {one.kind for one in follower.hook.classes})

    def test_without_a_plan(self):
        schedule = self.schedule(microbatches=7)
        follower = self.follow(schedule, None)
        schedule.step("x")
        self.saw(follower, 1, 14)
        self.assertIn("mode observe: 2 stages x 1 chunks x 7", self.said.getvalue())

    def test_refusals(self):
        with self.assertRaisesRegex(ergon.Error, "plan.json is for 4 microbatches per step, the "
                                    "trainer runs 8"):
            self.follow(self.schedule(microbatches=8))
        with self.assertRaisesRegex(ergon.Error, "one.json is for 1 stages, the trainer runs 2"):
            self.follow(self.schedule(), ONE)
        with self.assertRaisesRegex(ergon.Error, "the plan is for 1 stages"):
            self.follow(self.schedule(), None, plan_text=pathlib.Path(ONE).read_text())
        with self.assertRaisesRegex(ergon.Error, "a Interleaved puts stage 3 on rank 0 of 2; "
                                    "expected stages in order"):
            self.follow(Interleaved([Stage(0, 0, 2, []), Stage(3, 0, 2, [])]), INTERLEAVED)
        with self.assertRaisesRegex(ergon.Error, "a list is not a schedule"):
            self.follow([])
        schedule = self.schedule()
        schedule._stage.forward_one_chunk = lambda microbatch, tensors: None
        with self.assertRaisesRegex(ergon.Error, r"forward_one_chunk\(\) of this version of the "
                                    r"trainer takes \(microbatch, tensors\), expected fwd_chunk"):
            self.follow(schedule)
        self.assertEqual(self.said.getvalue(), "")

    def test_another_order(self):
        schedule = self.schedule(0)
        follower = self.follow(schedule)
        with self.assertRaisesRegex(ergon.Error, "forward pass of microbatch 2 came"):
            with follower.hook.step():
                for i in range(3):
                    schedule._stage.forward_one_chunk(i, ())

    def test_agreement(self):
        self.ranks = ranks = Ranks(4, lambda rank, mine: mine if len(mine) > 8 else
                                   (rank // 2 * 2).to_bytes(8, "little"))
        schedule = self.schedule()
        follower = adapter("pipelining").follow(schedule, PLAN, gpu="0")
        self.close(follower)
        self.assertEqual((ranks.groups, ranks.gathered), (["gloo"], [(8, "gloo")]))
        self.assertIn("2 pipelines that agree on late ones", self.said.getvalue())
        for _ in range(17):
            schedule.step("x")
        self.assertEqual(ranks.gathered, [(8, "gloo"), (64, "gloo")])
        alone = self.schedule()
        self.close(adapter("pipelining").follow(alone, PLAN, agree=False, mode="observe"))
        alone.step("x")
        self.assertEqual(len(ranks.gathered), 2)

    def test_replicas_of_a_mesh(self):
        sizes = {"pp": 2, "dp_replicate": 2, "dp_shard": 3, "tp": 2}
        mesh = types.SimpleNamespace(
            mesh_dim_names=tuple(sizes), size=lambda index: list(sizes.values())[index],
            get_local_rank={"pp": 1, "dp_replicate": 1, "dp_shard": 2, "tp": 1}.__getitem__)
        said = []
        self.ranks = Ranks(24, lambda rank, mine: said.append(mine) or mine)
        schedule = self.schedule()
        self.pipelining = adapter("pipelining")
        follower = self.close(self.pipelining.follow(schedule, PLAN, mesh, mode="observe"))
        self.assertIn("6 pipelines that agree", self.said.getvalue())
        for _ in range(16):
            schedule.step("x")
        version, replica, stage = (int.from_bytes(said[0][i:i + 4], "little") for i in (0, 4, 8))
        self.assertEqual((version, replica, stage), (1, 5, 1))
        self.saw(follower, 16, 32 * MICROBATCHES)
        alone = self.schedule()
        self.close(self.pipelining.follow(alone, PLAN, mesh, agree=False, mode="observe"))
        for _ in range(16):
            alone.step("x")
        self.assertEqual(len(said), 23)  # the other ranks' words, once

    def test_streams(self):
        fake = ctypes.CDLL(FAKE_CUDA)
        fake.fake_cuda_stream.restype = ctypes.c_void_p
        stream = fake.fake_cuda_stream()
        sys.modules["torch"].version.cuda = "13.2"
        current = types.SimpleNamespace(cuda_stream=stream)
        sys.modules["torch"].cuda = cuda = types.SimpleNamespace(
            is_available=lambda: True, is_initialized=lambda: True, current_device=lambda: 3,
            current_stream=lambda: current, get_device_properties=lambda device:
            types.SimpleNamespace(uuid=f"second{os.getpid()}") if device == 3 else None)
        schedule = self.schedule(0)
        follower = self.close(self.pipelining.follow(schedule, PLAN))
        self.assertIn("markers events", self.said.getvalue())
        schedule.step("x")
        self.saw(follower, 1, 2 * MICROBATCHES)
        self.assertEqual(fake.fake_cuda_calls(b"cuEventRecord"), 4 * MICROBATCHES)
        follower.close()
        mine = [line.split() for line in (WORK / "log").read_text().splitlines()
                if line.startswith(f"{os.getpid()} set 1 ")]
        self.assertGreater(len(mine), 0)
        current.cuda_stream = 0  # torch's default stream
        self.assertEqual(follower.stream(), 1)  # CU_STREAM_LEGACY
        cuda.is_initialized = lambda: False
        self.follow(self.schedule(0))
        self.assertIn("markers host", self.said.getvalue())


# ---- Megatron-Core ----


class Megatron(Trainers):
    def setUp(self):
        super().setUp()
        self.calls = calls = []
        self.state = types.SimpleNamespace(rank=1, size=2, chunks=None, replicas=1)
        module("megatron.core.parallel_state",
               get_pipeline_model_parallel_rank=lambda: self.state.rank,
               get_pipeline_model_parallel_world_size=lambda: self.state.size,
               get_virtual_pipeline_model_parallel_world_size=lambda: self.state.chunks,
               get_data_parallel_rank=lambda: 0,
               get_data_parallel_world_size=lambda: self.state.replicas)

        def forward_step(forward_step_func, data_iterator, model, num_microbatches, input_tensor,
                         forward_data_store, config, cp_group_size, collect_non_loss_data=False,
                         checkpoint_activations_microbatch=None, is_first_microbatch=False,
                         current_microbatch=None, vp_stage=None, is_last_stage=True):
            calls.append(("forward", current_microbatch))
            return "tensor", 1

        def backward_step(input_tensor, output_tensor, output_tensor_grad, model_type, config):
            calls.append(("backward", None))

        def run(passes, num_microbatches, forward_only, chunked=False):
            for kind, i, chunk in passes:
                if kind == "forward":
                    more = {"vp_stage": chunk} if chunked else {}
                    self.schedules.forward_step(None, None, None, num_microbatches, None, [], None,
                                                1, current_microbatch=i, **more)
                elif not forward_only:
                    self.schedules.backward_step(None, None, None, None, None)
            return "losses"

        def plain(num_microbatches, forward_only):
            passes = order_1f1b(self.state.rank, self.state.size, num_microbatches)
            return run([(*one, 0) for one in passes], num_microbatches, forward_only)

        def forward_backward_no_pipelining(*, forward_step_func, num_microbatches,
                                           forward_only=False):
            if self.combined:
                return self.schedules.combined_1f1b_schedule_for_no_pipelining(1, 2)
            return plain(num_microbatches, forward_only)

        def forward_backward_pipelining_without_interleaving(
                *, forward_step_func, num_microbatches, forward_only=False):
            return plain(num_microbatches, forward_only)

        def forward_backward_pipelining_with_interleaving(
                *, forward_step_func, num_microbatches, forward_only=False):
            passes = ergon.Plan(INTERLEAVED).passes(self.state.rank)
            return run([(one.direction, one.microbatch, one.chunk) for one in passes],
                       num_microbatches, forward_only, chunked=True)

        def combined_1f1b_schedule_for_no_pipelining(*args):
            calls.append("combined")

        self.combined = False
        self.schedules = module(
            "megatron.core.pipeline_parallel.schedules", forward_step=forward_step,
            backward_step=backward_step,
            forward_backward_no_pipelining=forward_backward_no_pipelining,
            forward_backward_pipelining_without_interleaving=(
                forward_backward_pipelining_without_interleaving),
            forward_backward_pipelining_with_interleaving=(
                forward_backward_pipelining_with_interleaving),
            combined_1f1b_schedule_for_no_pipelining=combined_1f1b_schedule_for_no_pipelining)
        self.megatron = adapter("megatron")

    def step(self, function, **options):
        return getattr(self.schedules, f"forward_backward_{function}")(
            forward_step_func=None, num_microbatches=options.pop("microbatches", MICROBATCHES),
            **options)

    def install(self, plan=PLAN, **options):
        return self.close(self.megatron.install(plan, gpu="0", **options))

    def test_pipelines(self):
        follower = self.install()
        self.assertIsNone(follower.hook)
        self.assertEqual(self.step("pipelining_without_interleaving", forward_only=True), "losses")
        for _ in range(2):
            self.assertEqual(self.step("pipelining_without_interleaving"), "losses")
        self.saw(follower, 2, 4 * MICROBATCHES)
        self.assertEqual(len(self.calls), 5 * MICROBATCHES)
        self.assertIn("Megatron-Core in mode follow", self.said.getvalue())

    def test_chunks(self):
        self.state.chunks = 2
        follower = self.install(INTERLEAVED)
        self.step("pipelining_with_interleaving")
        self.saw(follower, 1, 4 * MICROBATCHES)

    def test_without_a_pipeline(self):
        self.state.rank, self.state.size = 0, 1
        follower = self.install(ONE)
        self.step("no_pipelining")
        self.saw(follower, 1, 2 * MICROBATCHES)

    def test_refusals(self):
        self.state.rank, self.state.size = 0, 1
        self.install(ONE)
        with self.assertRaisesRegex(ergon.Error, "expected one install"):
            self.install(ONE)
        self.combined = True
        with self.assertRaisesRegex(ergon.Error, "combined_1f1b_schedule_for_no_pipelining.*"
                                    "overlap_moe_expert_parallel_comm"):
            self.step("no_pipelining")
        self.assertEqual(self.calls, [])

    def test_a_plan_of_other_numbers(self):
        self.install()
        with self.assertRaisesRegex(ergon.Error, "the trainer runs 8; expected a plan"):
            self.step("pipelining_without_interleaving", microbatches=8)
        self.assertEqual(self.calls, [])

    def test_unknown_signatures(self):
        self.schedules.forward_step = lambda model, microbatch: None
        with self.assertRaisesRegex(ergon.Error, r"forward_step\(\).* takes \(model, microbatch\), "
                                    "expected current_microbatch and vp_stage"):
            self.install()
        del self.schedules.backward_step
        self.schedules.forward_step = lambda current_microbatch, vp_stage: None
        with self.assertRaisesRegex(ergon.Error, r"has no backward_step\(\)"):
            self.install()


# ---- DeepSpeed ----


class DeepSpeed(Trainers):
    def setUp(self):
        super().setUp()
        self.calls = calls = []
        schedule = module("deepspeed.runtime.pipe.schedule",
                          **{name: type(name, (), {}) for name in
                             ("LoadMicroBatch", "ForwardPass", "BackwardPass")})

        class PipelineEngine:
            stage_id, num_stages, micro_batches = 1, 2, MICROBATCHES
            grid = types.SimpleNamespace(get_data_parallel_id=lambda: 0, data_parallel_size=1)

            def _exec_load_micro_batch(self, buffer_id):
                calls.append("load")

            def _exec_forward_pass(self, buffer_id):
                calls.append(("forward", buffer_id))

            def _exec_backward_pass(self, buffer_id):
                calls.append(("backward", buffer_id))

            _INSTRUCTION_MAP = {schedule.LoadMicroBatch: _exec_load_micro_batch,
                                schedule.ForwardPass: _exec_forward_pass,
                                schedule.BackwardPass: _exec_backward_pass}

            def run(self, passes):
                kinds = {"forward": schedule.ForwardPass, "backward": schedule.BackwardPass}
                for kind, i in passes:
                    if kind == "forward":
                        types.MethodType(self._INSTRUCTION_MAP[schedule.LoadMicroBatch], self)(0)
                    types.MethodType(self._INSTRUCTION_MAP[kinds[kind]], self)(buffer_id=i % 2)
                return "loss"

            def train_batch(self, data_iter=None):
                return self.run(order_1f1b(1, 2, MICROBATCHES))

            def eval_batch(self, data_iter, num_micro_batches=None):
                return self.run([("forward", i) for i in range(MICROBATCHES)])

        self.engine, self.schedule = PipelineEngine(), schedule
        self.deepspeed = adapter("deepspeed")

    def test_steps(self):
        follower = self.close(self.deepspeed.follow(self.engine, PLAN, gpu="0"))
        for _ in range(2):
            self.assertEqual(self.engine.train_batch(), "loss")
            self.assertEqual(self.engine.eval_batch(None), "loss")
        self.saw(follower, 2, 4 * MICROBATCHES)
        self.assertEqual(len(self.calls), 10 * MICROBATCHES)
        kept = type(self.engine)._INSTRUCTION_MAP[self.schedule.ForwardPass]
        self.assertIs(kept, type(self.engine)._exec_forward_pass)

    def test_refusals(self):
        with self.assertRaisesRegex(ergon.Error, "a SimpleNamespace has no schedule of passes"):
            self.deepspeed.follow(types.SimpleNamespace(), PLAN)
        self.engine._INSTRUCTION_MAP = dict(self.engine._INSTRUCTION_MAP)
        self.engine._INSTRUCTION_MAP[self.schedule.ForwardPass] = lambda engine, place: None
        with self.assertRaisesRegex(ergon.Error, r"takes \(engine, place\), expected buffer_id"):
            self.deepspeed.follow(self.engine, PLAN)


# ---- Lightning ----


class LightningTrainer:
    """The loop of Lightning 2.6, as callbacks see it."""

    accumulate_grad_batches, global_rank, world_size = MICROBATCHES, 0, 1

    def __init__(self, callback, batches, validate_every=None):
        self.callback, self.num_training_batches = callback, batches
        self.validate_every, self.is_last_batch = validate_every, False

    def fit(self, module, epochs=1):
        call = self.callback
        call.on_fit_start(self, module)
        self.validate(module)  # the sanity check
        for _ in range(epochs):
            for i in range(self.num_training_batches):
                self.is_last_batch = i + 1 == self.num_training_batches
                call.on_train_batch_start(self, module, "batch", i)
                call.on_before_backward(self, module, "loss")
                call.on_after_backward(self, module)
                call.on_train_batch_end(self, module, None, "batch", i)
                if self.validate_every and (i + 1) % self.validate_every == 0:
                    self.validate(module)

    def validate(self, module):
        self.callback.on_validation_start(self, module)
        self.callback.on_validation_end(self, module)


class Lightning(Trainers):
    def setUp(self):
        super().setUp()
        module("lightning.pytorch", Callback=type("Callback", (), {}))
        self.lightning = adapter("lightning")
        self.module = types.SimpleNamespace(automatic_optimization=True)

    def test_steps(self):
        follow = self.close(self.lightning.Follow(ONE, gpu="0"))
        LightningTrainer(follow, 1).validate(self.module)  # before any fit()
        LightningTrainer(follow, 2 * MICROBATCHES, 3).fit(self.module, 2)
        self.saw(follow, 4, 8 * MICROBATCHES)
        LightningTrainer(follow, MICROBATCHES).fit(self.module)
        self.saw(follow, 5, 10 * MICROBATCHES)

    def test_a_short_last_step(self):
        follow = self.close(self.lightning.Follow(ONE, mode="observe"))
        LightningTrainer(follow, MICROBATCHES + 1).fit(self.module, 2)
        self.saw(follow, 2, 4 * MICROBATCHES)

    def test_refusals(self):
        follow = self.close(self.lightning.Follow(ONE, gpu="0"))
        self.module.automatic_optimization = False
        with self.assertRaisesRegex(ergon.Error, "expected automatic_optimization"):
            LightningTrainer(follow, MICROBATCHES).fit(self.module)
        self.module.automatic_optimization = True
        trainer = LightningTrainer(follow, MICROBATCHES)
        trainer.accumulate_grad_batches = 2
        with self.assertRaisesRegex(ergon.Error, "is for 4 microbatches per step, the trainer runs "
                                    "2"):
            trainer.fit(self.module)

    def test_exceptions_unlock(self):
        follow = self.close(self.lightning.Follow(ONE, gpu="0"))
        trainer = LightningTrainer(follow, MICROBATCHES)
        follow.on_fit_start(trainer, self.module)
        follow.on_train_batch_start(trainer, self.module, "batch", 0)
        follow.on_exception(trainer, self.module, KeyboardInterrupt())
        last = [line.split()[1] for line in (WORK / "log").read_text().splitlines()
                if line.split()[0] == str(os.getpid())][-1]
        self.assertEqual(last, "reset")


# ---- transformers ----


class HuggingFaceTrainer:
    """The loop of transformers 5.24, as callbacks see it."""

    def __init__(self, batches, calls):
        self.batches, self.calls, self.callback = batches, calls, None
        self.args = types.SimpleNamespace(n_gpu=1, gradient_accumulation_steps=MICROBATCHES,
                                          process_index=0, world_size=1)
        self.accelerator = types.SimpleNamespace(backward=self.run_backward)
        self.current_gradient_accumulation_steps = MICROBATCHES

    def run_backward(self, loss, **kwargs):
        self.calls.append("backward")

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        self.calls.append("forward")
        return "loss"

    def training_step(self, model, inputs, num_items_in_batch=None):
        self.accelerator.backward(self.compute_loss(model, inputs))

    def evaluation_loop(self, dataloader, description):
        return self.compute_loss(None, None, return_outputs=True)

    def add_callback(self, callback):
        self.callback = callback

    def train(self):
        self.callback.on_train_begin(self.args, None, None)
        for first in range(0, self.batches, MICROBATCHES):
            count = min(MICROBATCHES, self.batches - first)
            self.current_gradient_accumulation_steps = count
            self.callback.on_step_begin(self.args, None, None)
            for _ in range(count):
                self.training_step(None, None)
            self.callback.on_step_end(self.args, None, None)
            assert self.evaluation_loop(None, "Evaluation") == "loss"


class HuggingFace(Trainers):
    def setUp(self):
        super().setUp()
        module("transformers", TrainerCallback=type("TrainerCallback", (), {}))
        self.huggingface = adapter("huggingface")
        self.calls = []

    def test_steps(self):
        trainer = HuggingFaceTrainer(2 * MICROBATCHES + 1, self.calls)
        follower = self.close(self.huggingface.follow(trainer, ONE, gpu="0"))
        self.assertIsNone(follower.hook)
        for done in (2, 4):
            trainer.train()
            self.saw(follower, done, 2 * done * MICROBATCHES)
        self.assertEqual(self.calls.count("backward"), 4 * MICROBATCHES + 2)
        self.assertEqual(self.calls.count("forward"), 4 * MICROBATCHES + 2 + 6)

    def test_tuning(self):
        trainer = HuggingFaceTrainer(200 * MICROBATCHES, self.calls)
        callback = self.huggingface.TuneCallback(
            "power", selector="energy", gpus="0", least=300, most=500, step=100, settle_steps=0,
            measure_steps=1, measure_s=0.05)
        trainer.add_callback(callback)
        trainer.run_backward = lambda loss: time.sleep(0.002)
        trainer.accelerator.backward = trainer.run_backward
        trainer.train()
        self.assertEqual(callback.tune.stats.steps, 200)
        self.assertGreater(callback.tune.stats.blocks, 2)
        self.assertTrue(callback.tune.points)
        callback.on_train_end(trainer.args, None, None)
        with self.assertRaisesRegex(ergon.Error, "the tuner is closed"):
            callback.tune.step_begin()
        trainer.args.process_index, trainer.args.world_size = 1, 2  # another one tunes
        other = self.huggingface.TuneCallback()
        trainer.add_callback(other)
        trainer.batches = MICROBATCHES
        trainer.train()
        self.assertIsNone(other.tune)
        with mock.patch.dict(os.environ, LOCAL_WORLD_SIZE="1"):
            with self.assertRaisesRegex(ergon.Error, "has 2 processes, 1 of them on this machine"):
                trainer.train()

    def test_tuning_that_fails(self):
        trainer = HuggingFaceTrainer(3 * MICROBATCHES, self.calls)
        callback = self.huggingface.TuneCallback("clock", gpus="0")
        trainer.add_callback(callback)
        callback.on_train_begin(trainer.args, None, None)
        callback.tune.step_begin()  # by somebody else: the callback's own is one too many
        with self.assertLogs("ergon", "WARNING") as said:
            trainer.train()
        self.assertEqual(len(said.output), 1)
        self.assertIn("begins within a step", said.output[0])
        self.assertEqual(self.calls.count("backward"), 3 * MICROBATCHES)
        callback.on_train_end(trainer.args, None, None)

    def test_refusals(self):
        trainer = HuggingFaceTrainer(MICROBATCHES, self.calls)
        trainer.args.n_gpu = 2
        with self.assertRaisesRegex(ergon.Error, "trains on 2 GPUs; expected one process"):
            self.huggingface.follow(trainer, ONE)
        trainer.args.n_gpu = 1
        trainer.compute_loss = lambda network, batch: None
        with self.assertRaisesRegex(ergon.Error, r"takes \(network, batch\), expected model and "
                                    "inputs"):
            self.huggingface.follow(trainer, ONE)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
