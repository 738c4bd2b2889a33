"""The Python package, with Python alone: test_python.py SOURCE_DIR LIBRARY ERGON FAKE_NVML"""
import ctypes
import dataclasses
import json
import logging
import math
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.dont_write_bytecode = True
SOURCE, LIBRARY, ERGON, FAKE_NVML = sys.argv[1:5]
FOLDER = tempfile.TemporaryDirectory()
WORK = pathlib.Path(FOLDER.name)
# GPUs are claimed by their UUID, so those of other tests have others.
(WORK / "gpus").write_text("gpus 2\ngpu 0 power 0=500\ngpu 0 counter 0.016 0.007\n"
                           "gpu 1 power 0=300\n" +
                           "".join(f"gpu {i} uuid GPU-python-{os.getpid()}-{i}\n" for i in (0, 1)))
os.environ["ERGON_LIBRARY"] = LIBRARY
os.environ["ERGON_NVML"] = FAKE_NVML
os.environ["ERGON_FAKE_NVML"] = str(WORK / "gpus")
os.environ.pop("CUDA_VISIBLE_DEVICES", None)
sys.path.insert(0, SOURCE + "/python")

import ergon  # noqa: E402
from ergon import _abi  # noqa: E402

EXAMPLES = pathlib.Path(SOURCE) / "examples"
KEYS = {"model": "llama-3.2-3b", "tensor": 8, "pipeline": 2, "microbatch_size": 8,
        "microbatches": 4, "sequence": 4096, "search": {"method": "random", "seed": 1},
        "cluster": {"nodes": 2, "gpus_per_node": 8, "gpu": "A100-SXM4-40GB",
                    "inter_node_bandwidth_gb_s": 50, "inter_node_latency_us": 20}}
PLAN = str(WORK / "plan.json")


class Abi(unittest.TestCase):
    def test_structs_are_those_of_the_headers(self):
        status = subprocess.run([sys.executable, "-B", SOURCE + "/python/make_abi.py", "--check"],
                                stdout=subprocess.PIPE, text=True)
        self.assertEqual(status.returncode, 0, status.stdout)
        self.assertGreater(len(_abi.SIZES), 25)
        for struct, size in _abi.SIZES.items():
            self.assertEqual(ctypes.sizeof(struct), size, struct)
            self.assertEqual({name for name, *_ in struct._fields_}, set(_abi.OFFSETS[struct]))
            for name, offset in _abi.OFFSETS[struct].items():
                self.assertEqual(getattr(struct, name).offset, offset, (struct, name))

    def test_the_package_and_the_library_are_of_one_version(self):
        said = subprocess.run([ERGON, "--version"], stdout=subprocess.PIPE, text=True).stdout
        self.assertIn(ergon.__version__, said)

    def test_a_library_that_is_not_there(self):
        said = subprocess.run([sys.executable, "-c", "import ergon"], stderr=subprocess.PIPE,
                              env=dict(os.environ, ERGON_LIBRARY="/nonexistent/libergon.so",
                                       PYTHONPATH=SOURCE + "/python"), text=True)
        self.assertIn("ImportError: the library of ergon cannot be loaded", said.stderr)


class Jobs(unittest.TestCase):
    def test_models(self):
        model = ergon.Model("llama-3.2-3b")
        self.assertEqual(model.info.parameters, 3212749824)
        self.assertIs(model.info.tied, True)
        with self.assertRaises(dataclasses.FrozenInstanceError):
            model.info.layers = 3
        with self.assertRaisesRegex(ergon.Error, "llama-3.2-3b"):
            ergon.Model("llama-3.2-3c")

    def test_jobs_by_keys_and_by_file(self):
        job = ergon.Job(**KEYS)
        job.check()
        self.assertEqual(job.info.batch, 32)
        self.assertIsNone(job.info.engine)
        self.assertEqual(ergon.Job.parse(job.text).info, job.info)
        other = ergon.Job(EXAMPLES / "quickstart.yaml", microbatches=4)
        other.set("search.method", "random").set("cluster.nodes", 2)
        self.assertEqual(other.info.microbatches, 4)
        self.assertIn("method: \"random\"", other.text)
        before = other.text
        with self.assertRaisesRegex(ergon.Error, r"quickstart.yaml:\d+: key 'microbatches'") as said:
            other.set("microbatches", "many")
        self.assertEqual(said.exception.status, "failed")
        self.assertEqual(other.text, before)
        with self.assertRaisesRegex(ergon.Error, "did you mean 'microbatches'"):
            ergon.Job(**dict(KEYS, micro_batches=3))
        other.set("name", "with: signs, [and] \"quotes\" \u20ac")
        self.assertEqual(other.info.name, "with: signs, [and] \"quotes\" \u20ac")
        other.set("tensor", 4)
        with self.assertRaises(ergon.Error):
            other.check()

    def test_memory(self):
        job = ergon.Job(EXAMPLES / "kwai" / "llama-65b.yaml")
        memory = job.memory()
        self.assertIs(memory.fits, True)
        self.assertEqual(memory.info.change, "")
        self.assertEqual(len(memory.stages), memory.info.pipeline)
        for stage in memory.stages:
            parts = (stage.weights_bytes + stage.gradients_bytes + stage.optimizer_bytes +
                     stage.activations_bytes + stage.other_bytes)
            self.assertAlmostEqual(parts / stage.peak_bytes, 1, 9)
        command = json.loads(subprocess.run([ERGON, "memory", "--json", "-q",
                                             EXAMPLES / "kwai" / "llama-65b.yaml"],
                                            stdout=subprocess.PIPE).stdout)
        self.assertEqual(memory.document(), command)
        self.assertTrue(memory._repr_html_().startswith("<iframe srcdoc="))
        job.set("recompute", "none").set("offload", 0)
        memory = job.memory(batch=64)
        self.assertIs(memory.fits, False)
        self.assertIn("GiB more than", memory.info.change)
        with self.assertRaisesRegex(ergon.Error, "accounting got 'x'") as said:
            job.memory(accounting="x")
        self.assertEqual(said.exception.status, "usage")

    def test_layouts(self):
        job = ergon.Job(EXAMPLES / "kwai" / "llama2-7b.yaml")
        layouts = job.plan(gpus=8, top=3)
        self.assertEqual([len(layouts), len(list(layouts))], [3, 3])
        self.assertEqual([one.gpus for one in layouts], [8, 8, 8])
        self.assertEqual(sorted(one.time_s for one in layouts), [one.time_s for one in layouts])
        self.assertIn(layouts[0].name, layouts._repr_html_())
        made = layouts.job(1)
        made.check()
        self.assertEqual(made.info.tensor, layouts[1].tensor)
        with self.assertRaisesRegex(ergon.Error, "a plan contains clocks"):
            layouts.plan()
        best = job.plan(gpus=8, layout=layouts[0].name, objective="least_energy")
        self.assertLess(best[0].energy_j, layouts[0].energy_j)
        self.assertEqual(best.plan().info.tensor, layouts[0].tensor)
        with self.assertRaises(ergon.Error) as said:
            job.plan(gpus=8, memory_bytes=2**30)
        self.assertEqual(said.exception.status, "infeasible")


class Questions(unittest.TestCase):
    def test_a_frontier(self):
        profile = WORK / "asked.csv"
        profile.write_text("stage,instruction,frequency,time,energy\n"
                           "0,forward,1410,0.010,4\n0,forward,1200,0.012,3\n"
                           "0,backward,1410,0.020,8\n0,backward,1200,0.024,6\n")
        answer = ergon.ask.frontier(profile, 4, blocking_power_w=80, plan=WORK / "asked.json")
        self.assertIn("0.120000 s, 48.000 J", answer.text)
        self.assertAlmostEqual(answer.document()["highest_clock"]["energy_j"], 48)
        self.assertEqual(len(answer.csv.splitlines()) - 1, len(answer.document()["points"]))
        answer.check()
        clocks = ergon.ask.programme(WORK / "asked.json")
        self.assertIsNone(clocks.csv)
        self.assertEqual(clocks.document()["highest_mhz"], 1410)
        with self.assertRaisesRegex(ergon.Error, "microbatches from 1 on") as said:
            ergon.ask.frontier(profile, 0)
        self.assertEqual(said.exception.status, "usage")

    def test_tokens(self):
        book = WORK / "book.txt"
        book.write_text("energy")
        answer = ergon.ask.tokenize("bytes", [book], WORK / "book")
        self.assertEqual(answer.document()["tokens"], 7)
        self.assertEqual(answer.document()["documents"], 1)
        self.assertTrue((WORK / "book.idx").exists())

    def test_layouts_and_memory(self):
        job = EXAMPLES / "kwai" / "llama2-7b.yaml"
        answer = ergon.ask.layouts(job, gpus=8, top=3)
        rows = ergon.Job(job).plan(gpus=8, top=3)
        self.assertEqual([row["time_s"] for row in answer.document()["layouts"]],
                         [row.time_s for row in rows])
        self.assertIn("slower than the fastest", ergon.ask.layouts(job, gpus="8", why="t=8").text)
        self.assertIsNone(ergon.ask.layouts(job, gpus="8", export_as="torchtitan").document())
        with self.assertRaisesRegex(ergon.Error, "something fits") as said:
            ergon.ask.layouts(job, gpus="8", memory_bytes=1e9).check()
        self.assertEqual(said.exception.status, "infeasible")
        memory = ergon.ask.memory(job, batch=64, recompute="none", offload=0.25)
        self.assertEqual(memory.document()["offload"], 0.25)
        self.assertIn("stage", memory.text)

    def test_options_are_those_of_jobs(self):
        job = EXAMPLES / "kwai" / "llama2-7b.yaml"
        given = {"gpus": 8, "layout": "t=8", "objective": "least_energy"}
        free = ergon.Job(job).plan(**given)[0]
        fastest = ergon.Job(job).plan(**dict(given, objective="fastest"))[0]
        deadline = (free.time_s + fastest.time_s) / 2
        self.assertLess(deadline, free.time_s)
        bound = ergon.Job(job).plan(**given, deadline=deadline)[0]
        asked = ergon.ask.layouts(job, **given, deadline=deadline).document()["layouts"][0]
        self.assertLessEqual(asked["time_s"], deadline)
        self.assertEqual((asked["time_s"], asked["energy_j"]), (bound.time_s, bound.energy_j))
        cluster = EXAMPLES / "cluster"
        files = [cluster / "cluster.yaml", cluster / "trace.csv", cluster / "profiles"]
        both = ergon.ask.simulate(*files, ["fcfs", "ergon"], until_s=6 * 3600)
        self.assertEqual([one["policy"] for one in both.document()["policies"]],
                         ["fcfs", "ergon"])
        quick = EXAMPLES / "quickstart.yaml"
        for methods in (["sequential", "nanobatching"], "sequential,nanobatching"):
            plan = WORK / "methods"
            ergon.ask.optimize(quick, microbatches=4, methods=methods, folder=plan)
            self.assertEqual(ergon.Plan(plan / "plan.json").methods,
                             ["sequential", "nanobatching"])

    def test_wrong_names_and_kinds(self):
        ask, job, there = ergon.ask, EXAMPLES / "quickstart.yaml", ["cluster", "trace", "profiles"]
        for words, wrong in (
                ("'deadline_s'", lambda: ask.layouts(job, deadline_s=9.5)),
                ("'watch'", lambda: ask.memory(job, watch=1)),
                ("'metods'", lambda: ask.optimize(job, metods="sequential")),
                ("'until'", lambda: ask.simulate(*there, "fcfs", until=3)),
                ("'deadlines'", lambda: ergon.Job(job).plan(deadlines=1)),
                ("layout got 64, expected a text or a path", lambda: ask.layouts(job, layout=64)),
                ("job got 7, expected a text", lambda: ask.memory(7)),
                (r"accounting got \['x'\]", lambda: ask.memory(job, accounting=["x"])),
                ("device got True", lambda: ask.optimize(job, device=True)),
                (r"methods got \[1\], expected a text or a list of texts",
                 lambda: ask.optimize(job, methods=[1])),
                ("policies got 3, expected", lambda: ask.simulate(*there, 3)),
                ("top got 'three'", lambda: ask.layouts(job, top="three")),
                (r"deadline_s got \[5\]", lambda: ask.layouts(job, deadline=[5])),
                ("gpus got 1, expected a text", lambda: ask.monitor(1)),
                ("files got 'book.txt', expected a list",
                 lambda: ask.tokenize("bytes", "book.txt", "book")),
                (r"files got 3, expected a text", lambda: ask.tokenize("bytes", [3], "book")),
                ("runs got 4, expected a list", lambda: ask.fit(engine="e", keys="k", runs=4)),
                ("arguments got 'sh'", lambda: ask.submit("live.yaml", arguments="sh")),
                ("command got 'true'", lambda: ask.probe(command="true")),
                ("command got 'true'", lambda: ergon.launch("true", 1)),
                ("files got 'a.json'", lambda: ergon.kernels("a.json")),
                ("gpu got 0, expected a text", lambda: ergon.Hook("plan.json", gpu=0)),
                ("gpus got 0, expected a text", lambda: ergon.Tune("power", gpus=0)),
                ("init got 1, expected a text", lambda: ergon.Train(job, init=1))):
            with self.subTest(words), self.assertRaisesRegex(TypeError, words):
                wrong()

    def test_no_struct_takes_a_wrong_member(self):
        for struct in _abi.SIZES:
            with self.assertRaisesRegex(TypeError, f"{struct.__name__} has no member 'deadlin'"):
                ergon._library.fill(struct(), deadlin=9.5)
        with self.assertRaisesRegex(TypeError, "erg_plan_goal has no member 'deadlin'"):
            ergon._library.sized(_abi.erg_plan_goal, deadlin=9.5)

    def test_a_plan(self):
        answer = ergon.ask.optimize(EXAMPLES / "quickstart.yaml", microbatches=4, search="random",
                                    seed=3, folder=WORK / "optimized", deadline=5)
        self.assertIn("optimized/plan.json", answer.text)
        self.assertTrue((WORK / "optimized" / "report.html").exists())
        self.assertEqual(answer.document()["job"]["microbatches"], 4)
        with self.assertRaisesRegex(ergon.Error, "search got 'luck'"):
            ergon.ask.optimize(EXAMPLES / "quickstart.yaml", search="luck")

    def test_clusters(self):
        cluster = EXAMPLES / "cluster"
        given = [cluster / "cluster.yaml", cluster / "trace.csv", cluster / "profiles"]
        answer = ergon.ask.simulate(*given, "fcfs", until_s=12 * 3600)
        self.assertEqual(answer.document()["energy_j"],
                         ergon.simulate(*given, "fcfs", until_s=12 * 3600)[0].energy_j)
        script = ergon.ask.sweep(cluster / "sweep.yaml", WORK / "swept", slurm_tasks=2)
        self.assertIn("#SBATCH --array=1-2", script.text)

    def test_a_probe(self):
        answer = ergon.ask.probe(device="emulated", base="A100-SXM4-40GB", seed=2)
        self.assertEqual(answer.document()["gpu"], "A100-SXM4-40GB")
        with self.assertRaisesRegex(ergon.Error, "only with --thermal"):
            ergon.ask.probe(device="emulated", command=["true"])

    def test_the_state_of_gpus(self):
        gpus = ergon.ask.monitor().document()["gpus"]
        monitor = ergon.Monitor()
        self.assertEqual(len(monitor), len(gpus))
        runs = monitor.draw(3, 80, ascii=True)
        rows = ["".join(run.text for run in runs if run.row == row) for row in range(3)]
        self.assertEqual([len(row) for row in rows], [80, 80, 80])
        self.assertEqual({run.style for run in runs} - set(ergon.monitor.STYLES), set())
        self.assertGreaterEqual(monitor.page(3), 1)

    def test_a_daemon_that_is_not_there(self):
        for ask in (lambda: ergon.ask.daemon(WORK / "no.sock"),
                    lambda: ergon.ask.grant(7, 1000, "0", WORK / "no.sock"),
                    lambda: ergon.ask.grant(7, 0, None, WORK / "no.sock")):
            with self.assertRaisesRegex(ergon.Error, "connecting to the daemon") as said:
                ask()
            self.assertEqual(said.exception.status, "no device")

    def test_ranks(self):
        lines = []
        ergon.launch(["sh", "-c", "echo $ERGON_RANK of $ERGON_WORLD_SIZE"], 2,
                     line=lambda *line: lines.append(line))
        self.assertEqual(sorted(lines), [(0, False, "0 of 2"), (1, False, "1 of 2")])
        with self.assertRaisesRegex(ergon.Error, "rank"):
            ergon.launch(["false"], 2)

        def refuse(rank, is_error, line):
            raise ZeroDivisionError(line)

        with self.assertRaises(ZeroDivisionError):
            ergon.launch(["echo", "here"], 1, line=refuse)


class Plans(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.steps = []
        cls.frontier = ergon.Job(**KEYS).optimize(folder=WORK / "out",
                                                  progress=lambda *step: cls.steps.append(step))
        cls.frontier.plan.save(PLAN)

    def test_frontiers(self):
        frontier = self.frontier
        self.assertGreater(len(self.steps), 10)
        self.assertEqual(frontier.method, "ergon")
        self.assertEqual(frontier.plan.methods, list(ergon.METHODS))
        times = memoryview(frontier.times_s)  # the buffer protocol, as numpy takes it
        self.assertEqual((times.format, len(times)), ("d", len(frontier)))
        self.assertEqual(list(times), sorted(point.time_s for point in frontier))
        self.assertEqual(list(frontier.energies_j), [point.energy_j for point in frontier])
        self.assertEqual(ergon.Plan(PLAN).frontier().points, frontier.points)
        self.assertEqual(ergon.Plan.parse(pathlib.Path(PLAN).read_text()).frontier().points,
                         frontier.points)
        self.assertTrue((WORK / "out" / "report.html").exists())
        self.assertIn("<iframe", frontier._repr_html_())
        self.assertIn("<html", frontier.html())
        with self.assertRaisesRegex(ergon.Error, "expected one of"):
            frontier.plan.frontier("ergo")

    def test_selection(self):
        plan = ergon.Plan(PLAN)
        frontier = plan.frontier("ergon")
        last = frontier[-1]
        self.assertEqual(frontier.select(deadline=last.time_s), last)
        self.assertEqual(frontier.select(pick="fastest"), frontier[0])
        self.assertEqual(frontier.select(point=2), frontier[2])
        self.assertEqual(plan.info.point, 2)
        middle = frontier[len(frontier) // 2]
        self.assertEqual(frontier.select(energy=middle.energy_j), middle)
        self.assertEqual(frontier.select(power=middle.power_w), middle)
        with self.assertRaisesRegex(ergon.Error, "deadline") as said:
            frontier.select(deadline=0.01)
        self.assertEqual(said.exception.status, "infeasible")
        self.assertEqual(plan.info.point, middle.index)
        self.assertGreaterEqual(plan.select(straggler=10).time_s, last.time_s)

    def test_passes(self):
        plan = ergon.Plan(PLAN)
        passes = plan.passes(1)
        self.assertEqual([one.direction for one in passes], ["forward", "backward"] * 4)
        self.assertEqual([one.microbatch for one in passes], [0, 0, 1, 1, 2, 2, 3, 3])
        said = plan.expand()["chosen"]["stages"][1]["instructions"]
        self.assertEqual([one["clock_mhz"] for one in said], [one.clock_mhz for one in passes])
        self.assertEqual([one["start_s"] for one in said], [one.start_s for one in passes])
        with self.assertRaisesRegex(ergon.Error, "expected one below 2"):
            plan.passes(2)

    def test_combining(self):
        self.assertEqual(ergon.combine([(1, 5), (2, 5), (3, 1)]), [(1, 5, (0,)), (3, 1, (2,))])
        both = ergon.combine([(1, 5), (3, 1)], [(1, 4), (2, 2)], [(1, 1)])
        self.assertEqual(both, [(3, 10, (0, 0, 0)), (4, 8, (0, 1, 0)), (5, 6, (1, 0, 0)),
                                (6, 4, (1, 1, 0))])

    def test_exceptions_of_callbacks_end_calls(self):
        def refuse(task, done, total):
            raise ZeroDivisionError(task)

        job = ergon.Job(**KEYS)
        with self.assertRaises(ZeroDivisionError):
            job.optimize(progress=refuse)

    def test_interrupts_end_calls(self):
        def interrupt(task, done, total):
            if len(steps) == 3:
                os.kill(os.getpid(), signal.SIGINT)
            steps.append(task)
            time.sleep(0.01)

        # A shell starts what runs in its background with this signal ignored.
        handler = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.addCleanup(signal.signal, signal.SIGINT, handler)
        steps = []
        with self.assertRaises(KeyboardInterrupt):
            ergon.Job(**KEYS).optimize(progress=interrupt)
        self.assertGreater(len(steps), 3)

    def test_warnings_are_logged(self):
        with self.assertLogs("ergon", logging.WARNING) as logs:
            ergon.Job(**dict(KEYS, microbatch_size=2000)).optimize(methods=["sequential"])
        self.assertIn("will not fit into memory", logs.output[0])

    def test_calls_from_several_threads(self):
        def work(index):
            found[index] = ergon.Job(**KEYS).optimize().points

        found = {}
        threads = [threading.Thread(target=work, args=[i]) for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([found[i] == self.frontier.points for i in range(3)], [True] * 3)


class Clusters(unittest.TestCase):
    def test_policies_side_by_side(self):
        folder = EXAMPLES / "cluster"
        results = ergon.simulate(folder / "cluster.yaml", folder / "trace.csv",
                                 folder / "profiles", ["fcfs", "ergon"], until_s=6 * 3600,
                                 folder=WORK / "cluster")
        self.assertEqual([one.policy for one in results], ["fcfs", "ergon"])
        self.assertTrue(math.isnan(results[0].cost_usd))
        self.assertEqual(len(results.document()["policies"]), 2)
        self.assertIn("<iframe", results._repr_html_())
        self.assertTrue((WORK / "cluster" / "report.html").exists())
        with self.assertRaisesRegex(ergon.Error, "fifo"):
            ergon.simulate(folder / "cluster.yaml", folder / "trace.csv", folder / "profiles",
                           "fifo")


class Studies(unittest.TestCase):
    def test_points(self):
        file = EXAMPLES / "characterize" / "charllm-fault-h200.yaml"
        study = ergon.characterize(file, WORK / "study", seed=3, jobs=1)
        self.assertEqual((study.counts.ran, study.counts.ok), (4, 4))
        self.assertEqual(len(study.document()["marks"]), 4)
        self.assertTrue((WORK / "study" / "report.html").exists())
        again = ergon.characterize(file, WORK / "study", seed=3)
        self.assertEqual((again.counts.ran, again.counts.ok), (0, 4))
        with self.assertRaisesRegex(ergon.Error, "right got 'watts'"):
            ergon.characterize(None, WORK / "study", right="watts")


class Tuning(unittest.TestCase):
    OPTIONS = {"selector": "energy", "gpus": "0", "least": 300, "most": 500, "step": 100,
               "settle_steps": 0, "measure_steps": 2, "measure_s": 0.05}

    def tuned(self, **more):
        with ergon.Tune("power", **self.OPTIONS, **more) as tune:
            for _ in range(3000):
                if tune.stats.state != "measuring":
                    break
                with tune.step():
                    time.sleep(0.005)
        return tune

    def test_a_limit(self):
        profile = WORK / "limits.json"
        tune = self.tuned(profile=profile)
        self.assertEqual(tune.stats.state, "done")
        self.assertIn(tune.stats.value, (300, 400, 500))
        self.assertTrue(tune.stats.meets and tune.stats.blocks >= len(tune.points) >= 2)
        values = [point.value for point in tune.points]
        self.assertEqual(values, sorted(set(values)))
        for point in tune.points:  # of two steps of 5 ms at least, at 500 W
            self.assertGreater(point.time_s, 0.005)
            self.assertGreater(point.energy_j, 0.5 * 500 * point.time_s)
            self.assertLess(point.energy_j, 2 * 500 * point.time_s)
        self.assertEqual(len(json.loads(profile.read_text())["measurements"]), len(tune.points))
        with ergon.Tune("power", **self.OPTIONS, profile=profile) as again:  # nothing is measured
            self.assertEqual((again.stats.state, again.stats.blocks), ("done", 0))
            self.assertEqual(again.stats.value, tune.stats.value)
        with self.assertRaisesRegex(ergon.Error, "the tuner is closed"):
            tune.step_begin()

    def test_refusals(self):
        with self.assertRaisesRegex(ergon.Error, "knob got 'voltage', expected one of power, clock"):
            ergon.Tune("voltage")
        with self.assertRaisesRegex(ergon.Error, "selector got 'best'"):
            ergon.Tune("power", selector="best")
        with self.assertRaisesRegex(ergon.Error, "weight 2, expected 0 to 1"):
            ergon.Tune("power", weight=2)
        tune = ergon.Tune("clock", gpus="0")
        tune.step_begin()
        with self.assertRaisesRegex(ergon.Error, "begins within a step"):
            tune.step_begin()
        child = os.fork()
        if child == 0:
            try:
                tune.step_end()
            except ergon.Error as problem:
                os._exit(0 if "belongs to the parent process" in str(problem) else 1)
            os._exit(2)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        tune.close()
        tune.close()


class Meters(unittest.TestCase):
    def near(self, gpu, expected_w, result):
        # Twice the stated uncertainty, which must say something.
        self.assertLess(gpu.uncertainty_j, 0.5 * gpu.energy_j)
        self.assertAlmostEqual(gpu.energy_j, expected_w * result.time_s,
                               delta=2 * gpu.uncertainty_j + 0.1)

    def test_windows(self):
        with ergon.Meter() as meter:
            self.assertEqual([gpu.index for gpu in meter.gpus], [0, 1])
            with meter.window("outer") as outer:
                with meter.window("inner") as inner:
                    time.sleep(0.8)
                    self.assertGreater(inner.look().time_s, 0.7)
            dropped = meter.window("dropped").begin()
            dropped.cancel()
            with self.assertRaisesRegex(ergon.Error, "'dropped' has not begun"):
                dropped.end()
            with self.assertRaises(ZeroDivisionError):
                with meter.window() as failed:
                    1 / 0
            self.assertIsNone(failed.result)
            left = meter.window("left").begin()
        for window in (outer, inner):
            self.near(window.result.gpus[0], 500, window.result)
            self.near(window.result.gpus[1], 300, window.result)
            self.assertEqual(window.result.energy_gpus, 2)
        self.assertGreater(outer.result.time_s, inner.result.time_s)
        with self.assertRaisesRegex(ergon.Error, "the meter is closed"):
            left.end()

    def test_some_gpus(self):
        with ergon.Meter("1") as meter, meter.window() as window:
            time.sleep(0.8)
        self.assertEqual(len(window.result.gpus), 1)
        self.near(window.result.gpus[0], 300, window.result)
        with self.assertRaises(ergon.Error) as said:
            ergon.Meter("7")
        self.assertIn(said.exception.status, ("no device", "usage", "failed"))

    def test_the_calls_of_zeus(self):
        log = WORK / "zeus.csv"
        monitor = ergon.ZeusMonitor(gpu_indices=[1], log_file=log)
        monitor.begin_window("step")
        with self.assertRaisesRegex(ValueError, "'step' already exists"):
            monitor.begin_window("step")
        time.sleep(0.8)
        measured = monitor.end_window("step")
        self.assertEqual(list(measured.gpu_energy), [1])
        self.assertEqual(measured.total_energy, measured.gpu_energy[1])
        self.near(measured.result.gpus[1], 300, measured.result)
        with self.assertRaisesRegex(ValueError, "'step' does not exist"):
            monitor.end_window("step")
        monitor.begin_window("none", sync_execution=True)  # there is no torch: nothing to wait for
        self.assertEqual(monitor.end_window("none", cancel=True).total_energy, 0)
        monitor.close()
        lines = log.read_text().splitlines()
        self.assertEqual(lines[0], "start_time,window_name,elapsed_time,gpu1_energy")
        self.assertEqual(lines[1].split(",")[1:], ["step", repr(measured.time),
                                                   repr(measured.total_energy)])
        with self.assertRaisesRegex(ergon.Error, "GPU 2 of 2"):
            ergon.ZeusMonitor(gpu_indices=[2])


class Hooks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        profile = WORK / "profile.csv"
        profile.write_text("stage,instruction,frequency,time,energy\n"
                           "0,forward,1410,0.010,4\n0,forward,1200,0.012,3\n"
                           "0,backward,1410,0.020,8\n0,backward,1200,0.024,6\n")
        cls.plan = WORK / "hooked.json"
        subprocess.run([ERGON, "frontier", profile, "-m", "2", "-p", "80", "--plan", cls.plan,
                        "-q"], stdout=subprocess.DEVNULL, check=True)

    def test_steps(self):
        with ergon.Hook(self.plan, mode="observe", gpu="0") as hook:
            for _ in range(3):
                with hook.step():
                    for i in range(2):
                        with hook.instruction("forward", chunk=0, microbatch=i):
                            pass
                        with hook.instruction("backward"):
                            pass
            with hook.paused():
                hook.begin(3)  # ignored
            self.assertEqual(hook.stats.steps, 3)
            self.assertEqual(hook.stats.passes, 12)
            self.assertEqual(hook.stats.trouble, "")
            self.assertEqual({one.kind for one in hook.classes}, {"forward", "backward"})
            self.assertEqual(sum(one.count for one in hook.classes), 12)
            self.assertEqual(hook.late(1.2).cause, "asked")
            self.assertIsNone(hook.agreed())
            with self.assertRaisesRegex(ergon.Error, "nothing is paused"):
                hook.resume()
        with self.assertRaisesRegex(ergon.Error, "the hook is closed"):
            hook.step_begin()

    def test_the_functions_of_a_trainer(self):
        calls = []
        with ergon.Hook(self.plan, mode="follow", gpu="0") as hook:
            def forward(index):
                calls.append(("forward", index))
                return index

            forward = hook.around(forward, "forward", microbatch=lambda args, kwargs: args[0])
            backward = hook.around(lambda index: calls.append(("backward", index)), "backward")

            def train(evaluate=False):
                for i in range(2):
                    forward(i)
                    if not evaluate:
                        backward(i)
                return "done"

            train = hook.step_of(train, paused=lambda args, kwargs: kwargs.get("evaluate", False))
            self.assertEqual(train(), "done")
            self.assertEqual(train(evaluate=True), "done")
            self.assertEqual(hook.stats.steps, 1)
            self.assertEqual(hook.stats.lease, "direct")
            self.assertEqual(len(calls), 6)

    def test_profiles(self):
        path = WORK / "made.csv"
        draw = ctypes.CDLL(FAKE_NVML).fake_nvml_work
        draw.argtypes = [ctypes.c_uint, ctypes.c_int64, ctypes.c_int64, ctypes.c_double]

        def work(seconds, more_w):
            now = time.monotonic_ns()
            draw(0, now, now + int(1e9 * seconds), more_w)
            time.sleep(seconds)

        with ergon.Hook(mode="profile", gpu="0", profile=path) as hook:
            hook.agree(lambda mine: [mine], 1)
            # A clock is left out after 43 steps if a busy machine disturbed its passes: those of the
            # next clock are twice as long.
            while hook.stats.steps < 5 * 43 and not hook.stats.profile_clocks:
                longer = 2 ** (hook.stats.steps // 43)
                with hook.step():
                    time.sleep(0.02 * longer)
                    with hook.instruction("forward", chunk=0, microbatch=0):
                        work(0.01 * longer, 100)
                    with hook.instruction("backward", chunk=0, microbatch=0):
                        work(0.02 * longer, 150)
            stats = hook.stats
            self.assertEqual(stats.lease, "direct")
            self.assertEqual((stats.profile_clocks, stats.profile_over), (1, False))
            self.assertIn(f"ergon frontier {path} -m 1 ", stats.profile)
        self.assertTrue(path.read_text().startswith("stage,instruction,frequency,time,energy\n"))
        with self.assertRaisesRegex(ergon.Error, 'expected "profile" with the file of a profile'):
            ergon.Hook(self.plan, mode="observe", gpu="0", profile=path)

    def test_wrong_orders(self):
        hook = ergon.Hook(self.plan, mode="observe", gpu="0")
        with self.assertRaisesRegex(ergon.Error, "backward") as said:
            with hook.step():
                with hook.instruction("backward"):
                    pass
        self.assertEqual(said.exception.status, "failed")
        hook.close()
        with self.assertRaisesRegex(ergon.Error, "expected one of observe, follow, profile"):
            ergon.Hook(self.plan, mode="both")
        with self.assertRaises(ergon.Error):
            ergon.Hook(self.plan, stage=5, mode="observe")

    def test_agreement(self):
        def exchange(mine):
            asked.append(len(mine))
            return [mine]

        asked = []
        with ergon.Hook(self.plan, mode="observe", gpu="0") as hook:
            hook.agree(exchange, ranks=1)
            for _ in range(17):
                with hook.step():
                    for _ in range(2):
                        for kind in ("forward", "backward"):
                            with hook.instruction(kind):
                                pass
            self.assertEqual(asked, [64])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
