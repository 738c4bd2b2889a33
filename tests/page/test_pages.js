/*
 * The pages that ergon writes, opened by Node.js without a browser (dom.js): that all of what a
 * document holds is drawn where it belongs, and what pointing, clicking and keys do.
 *
 * Usage: node test_pages.js ERGON SOURCE_DIR
 */
"use strict";
const assert = require("assert");
const { execFileSync } = require("child_process");
const fs = require("fs");
const os = require("os");
const path = require("path");
const { changePage, gpuRun, prepareTraining, sweepText, way } = require("./documents.js");
const { openPage } = require("./dom.js");
const livePage = require("./live_page.js");

const [ergon, source] = process.argv.slice(2);
const folder = fs.mkdtempSync(path.join(os.tmpdir(), "ergon-pages-"));
const run = (...args) => execFileSync(ergon, [...args, "--quiet"], { cwd: folder, stdio: ["ignore", "pipe", "inherit"] });
const example = name => path.join(source, "examples", name);
const inFolder = name => path.join(folder, name);
const number = (element, name) => Number(element.getAttribute(name));
/* Of lists from a page too, which are of another world. */
const same = (actual, expected) => assert.strictEqual(JSON.stringify(actual), JSON.stringify(expected));
const near = (actual, expected, relative, what) =>
  assert.ok(Math.abs(actual - expected) <= relative * Math.abs(expected), `${what}: ${actual}, expected ${expected}`);

/* Of any page: nothing that could not be drawn, and no number that is none. */
function checkWhole(page) {
  const bad = /could not be drawn|NaN|undefined|Infinity|\[object/;
  const look = element => {
    for (const [name, value] of Object.entries(element.attributes))
      assert.ok(!bad.test(value), `<${element.tag} ${name}="${value.slice(0, 200)}">`);
    for (const node of element.nodes) {
      if (typeof node !== "string") look(node);
      else assert.ok(!bad.test(node), `in <${element.tag}>: ${node.slice(0, 200)}`);
    }
    for (const item of element.painted || [])
      for (const value of Object.values(item))
        assert.ok(typeof value === "string" ? !bad.test(value) : Number.isFinite(value), `painted: ${JSON.stringify(item)}`);
  };
  look(page.body);
  assert.match(page.document.title, /^ergon [a-z]+: /);
  assert.ok(page.byId("headline").textContent.length > 20);
}

const rowsOf = (page, id) => page.byId(id).all("tbody").flatMap(body => body.all("tr"));
const cellsOf = row => row.children.map(cell => cell.textContent);
const writeLive = (name, status) => livePage.write(source, inFolder(name), status);

/* Positions go with values: a larger value lies further in the direction of `sign`. */
function checkOrder(values, positions, sign, what) {
  assert.strictEqual(values.length, positions.length, what);
  const order = values.map((value, i) => i).sort((a, b) => values[a] - values[b]);
  for (let i = 1; i < order.length; i++)
    assert.ok(sign * (positions[order[i]] - positions[order[i - 1]]) >= -0.11, `${what}: ${values[order[i]]} at ${positions[order[i]]}`);
}

const tests = {
  "optimize: a small job is said in its own units and numbers"() {
    fs.writeFileSync(inFolder("small.yaml"), `model: llama-3.2-1b
cluster: {nodes: 2, gpus_per_node: 8, gpu: A100-SXM4-80GB, inter_node_bandwidth_gb_s: 25}
pipeline: 16
microbatch_size: 1
microbatches: 1
sequence: 256
`);
    run("optimize", inFolder("small.yaml"), "--output", "small");
    const page = openPage(inFolder("small/report.html"), []);
    checkWhole(page);
    assert.match(page.byId("subtitle").textContent, /16 pipeline stages of 1 layer, .* 1 microbatch of 1 × 256 tokens/);
    const bars = page.byId("breakdown-bars").textContent;
    assert.match(bars, /\d\u00a0J/);
    assert.ok(!bars.includes("kJ"), bars);
  },
  "optimize: every plan has its place, its recipe and its timeline"() {
    run("optimize", example("quickstart.yaml"), "--output", "optimize");
    const page = openPage(inFolder("optimize/report.html"), ["METHODS", "timelineOf"]);
    checkWhole(page);
    const plan = page.data, marks = page.byId("frontier-chart").all("svg")[0];
    same(page.METHODS.map(m => m.key), Object.keys(plan.methods));
    const ours = page.METHODS.find(m => m.key === "ergon"), dots = marks.all(e => e.tag === "circle" && e.getAttribute("r") === "4");
    checkOrder(ours.points.map(p => p.time_s), dots.map(d => number(d, "cx")), 1, "time to the right");
    checkOrder(ours.points.map(p => p.energy_j), dots.map(d => number(d, "cy")), -1, "energy up");

    const rows = rowsOf(page, "comparison-table");
    assert.strictEqual(rows.length, 5);
    const versus = plan.methods.ergon.versus;
    same(cellsOf(rows[4]).slice(3), [versus.max_throughput_time_reduction_percent,
      versus.max_throughput_energy_reduction_percent, versus.iso_time_energy_reduction_percent,
      versus.iso_energy_time_reduction_percent].map(value => `${value.toFixed(1)}\u00a0%`));

    /* The page works out the timeline of any plan; it takes what the planner said, and as long as
     * the document's own timelines. */
    const drawn = plan.timelines.slice(1);
    assert.ok(drawn.length > 0);
    let ratios = [];
    for (const method of page.METHODS)
      method.points.forEach((point, i) => ratios.push(point.time_s / page.timelineOf(method, i).time_s));
    near(Math.min(...ratios), Math.max(...ratios), 1e-6, "all plans longer by the same overhead");
    assert.ok(ratios[0] >= 1 - 1e-9 && ratios[0] < 1.05);
    const planTimelines = openPage(inFolder("optimize/report.html"), ["plan", "METHODS", "timelineOf"]);
    planTimelines.plan.timelines.length = 1;
    for (const timeline of drawn) {
      const own = planTimelines.timelineOf(planTimelines.METHODS.find(m => m.key === timeline.method), timeline.point);
      near(own.time_s, timeline.time_s, 1e-6, "timeline worked out by the page");
      timeline.stages.forEach((row, s) => row.forEach((span, k) =>
        near(own.stages[s][k].end_s, span.end_s, 1e-5, `end of span ${k} of stage ${s}`)));
    }

    const canvases = page.byId("pipeline-charts").all("canvas");
    assert.strictEqual(canvases.length, 2);
    const spans = plan.timelines[0].stages.flat().length;
    assert.ok(canvases.every(c => c.painted.filter(p => "width" in p).length >= spans));
    const partitions = page.byId("partition-charts").children;
    assert.strictEqual(partitions.length, plan.partition_timelines.length);
    plan.partition_timelines.forEach((picture, i) =>
      assert.match(partitions[i].textContent, new RegExp(`, at ${picture.clock_mhz} MHz[:,]`), "the clock that was set"));
    assert.match(page.byId("provenance-list").textContent, new RegExp(`plan format ${plan.schema_version}`));
    assert.strictEqual(/a step beyond its iteration/.test(page.byId("provenance-list").textContent), "beyond" in plan);
  },

  "optimize: a plan is pointed at, kept by click and by key"() {
    const page = openPage(inFolder("optimize/report.html"), ["METHODS", "state"]);
    const ours = page.METHODS.find(m => m.key === "ergon"), svg = () => page.byId("frontier-chart").all("svg")[0];
    const dot = svg().all(e => e.tag === "circle" && e.getAttribute("r") === "4")[3];
    const at = { clientX: number(dot, "cx"), clientY: number(dot, "cy") };
    svg().fire("pointermove", at);
    assert.match(page.byId("recipe").textContent, new RegExp(`plan 4 of ${ours.points.length}`));
    assert.ok(!page.byId("tip").hidden);
    svg().fire("pointerleave");
    assert.ok(page.byId("tip").hidden);
    assert.strictEqual(page.state.kept.point, page.data.selected.point);
    svg().fire("click", at);
    assert.strictEqual(page.state.kept.point, 3);
    assert.match(page.byId("pipeline-charts").textContent, /After: ergon, your choice/);
    assert.match(page.byId("breakdown-bars").textContent, /your choice/);
    svg().fire("keydown", { key: "ArrowRight" });
    svg().fire("keydown", { key: "Enter" });
    assert.strictEqual(page.state.kept.point, 4);
    svg().fire("keydown", { key: "ArrowUp" });
    svg().fire("keydown", { key: "Enter" });
    assert.strictEqual(page.state.kept.method, "nanobatching+clocks");
    for (const [key, point] of [["End", page.METHODS.find(m => m.key === "nanobatching+clocks").points.length - 1], ["Home", 0]]) {
      svg().fire("keydown", { key });
      svg().fire("keydown", { key: "Enter" });
      assert.strictEqual(page.state.kept.point, point, key);
    }
    for (const button of page.byId("pipeline-controls").all("button")) {
      button.fire("click");
      assert.strictEqual(button.getAttribute("aria-pressed"), "true");
    }
    const canvas = page.byId("pipeline-charts").all("canvas")[0], box = canvas.painted.filter(p => "width" in p && p.height > 10).pop();
    canvas.fire("pointermove", { clientX: box.x + 1, clientY: box.y + 1 });
    assert.match(page.byId("tip").textContent, /^stage \d, (forward|backward) of microbatch \d+\n\d+ MHz/);
    page.window.fire("beforeprint");
    page.window.fire("afterprint");
    checkWhole(page);
  },

  "layout: the ranking, all layouts, and the stages of a row"() {
    run("layout", example("kwai/llama2-7b.yaml"), "--top", "5", "--output", "layouts");
    const page = openPage(inFolder("layouts/layouts.html"));
    checkWhole(page);
    const rows = rowsOf(page, "top"), { points, layouts } = page.data;
    assert.strictEqual(rows.length, layouts.length);
    rows.forEach((row, i) => assert.strictEqual(row.children[2].textContent, layouts[i].recompute));
    const dots = page.byId("scatter").all(e => e.getAttribute("class") === "dot");
    const edge = Math.max(...points.time_s);
    assert.ok(dots.length > 0 && dots.length <= points.time_s.length);
    if (dots.length === points.time_s.length)
      checkOrder(points.time_s, dots.map(d => number(d, "cx")), 1, `layouts by time, to ${edge} s`);
    else
      assert.match(page.byId("scatter-note").textContent, /take longer than is drawn/);
    const last = layouts.length - 1, ring = () => page.byId("scatter").all(e => e.getAttribute("class") === "chosen")[0].getAttribute("cx");
    const before = ring(), [choice] = rows[last].all("button");
    assert.strictEqual(choice.getAttribute("aria-pressed"), "false");
    choice.fire("click");
    assert.strictEqual(choice.getAttribute("aria-pressed"), "true");
    assert.notStrictEqual(ring(), before);
    assert.strictEqual(page.byId("bytes").children.length, layouts[last].stages.length);
    /* The middle of a mark: of a circle, a square, or the tip of the others. */
    const middle = ([shape]) => (shape.tag === "circle" ? number(shape, "cx") : shape.tag === "rect" ? number(shape, "x") + number(shape, "width") / 2
      : Number(/^M([0-9.]+),/.exec(shape.getAttribute("d"))[1]));
    const union = page.byId("frontier").all(e => e.getAttribute("class") === "plan").map(mark => middle(mark.children));
    checkOrder(page.data.frontier.map(p => p.time_s), union, 1, "frontier by time");
    page.byId("frontier").all("svg")[0].fire("keydown", { key: "ArrowRight" });
    assert.match(page.byId("tip").textContent, /recomputation: .*\n.*W per GPU\nmean clocks: forward \d+ MHz/);
    /* Shares of time are bars whose widths add up to the layout's time. */
    const most = Math.max(...layouts.map(l => l.highest_clock.time_s));
    page.byId("items").children.forEach((row, i) => {
      const widths = row.all("i").map(part => Number(/width:([0-9.]+)%/.exec(part.getAttribute("style"))[1]));
      near(widths.reduce((a, b) => a + b, 0), 100 * layouts[i].highest_clock.time_s / most, 1e-3, `bar of layout ${i}`);
    });
  },

  "memory: on several kinds of GPUs each stage beside its own"() {
    const job = fs.readFileSync(example("mixed/llama-3.2-1b_h800_a100.yaml"), "utf8")
      .replace(/A100-SXM4-80GB/g, "A100-SXM4-40GB");
    fs.writeFileSync(inFolder("mixed.yaml"), job);
    run("memory", "mixed.yaml", "--report", "mixed.html");
    const page = openPage(inFolder("mixed.html"), []);
    checkWhole(page);
    const { stages } = page.data, gpus = stages.map(stage => stage.gpu);
    same(gpus, ["A100-SXM4-40GB", "A100-SXM4-40GB", "H800-SXM-80GB", "H800-SXM-80GB"]);
    assert.match(page.byId("headline").textContent, /^The layout fits: the fullest GPU needs \d+\.\d\d\u00a0GiB of its budget of 36\.00\u00a0GiB\.$/);
    const lines = page.byId("memory-bars").all("b").map(line => parseFloat(line.getAttribute("style").slice(5)));
    near(lines[2], 2 * lines[0], 1e-6, "twice the budget, twice as far");
    stages.forEach((stage, s) => assert.ok(page.byId("memory-charts").all("h3")[s].textContent.endsWith(stage.gpu)));
    const rows = rowsOf(page, "memory-table").map(cellsOf);
    same(rows[0], ["GPU", ...gpus]);
    same(rows[rows.length - 1], ["Budget", "36.00", "36.00", "72.00", "72.00"]);
  },

  "memory: bars, courses and numbers agree"() {
    run("memory", example("kwai/llama2-7b.yaml"), "--report", "memory.html");
    const page = openPage(inFolder("memory.html"), ["present"]);
    checkWhole(page);
    const { stages } = page.data, rows = rowsOf(page, "memory-table");
    assert.strictEqual(rows.length, page.present.length + 1);
    stages.forEach((stage, i) => {
      const column = rows.map(row => Number(row.children[i + 1].textContent));
      const sum = column.slice(0, -1).reduce((a, b) => a + b, 0);
      assert.ok(Math.abs(sum - column[column.length - 1]) < 0.01 * rows.length, `parts of stage ${i} add up`);
      near(column[column.length - 1], stage.peak_bytes / 2 ** 30, 0.01, `peak of stage ${i}`);
    });
    const charts = page.byId("memory-charts").all("svg");
    assert.strictEqual(charts.length, stages.length);
    assert.strictEqual(charts[0].all("polygon").length, page.present.length);
    charts[0].fire("keydown", { key: "ArrowRight" });
    assert.match(page.byId("tip").textContent, /^pass 1 of \d+: forward of microbatch 0/);
    charts[0].fire("keydown", { key: "End" });
    const [, pass, count] = /^pass (\d+) of (\d+): backward/.exec(page.byId("tip").textContent);
    assert.strictEqual(pass, count);
    /* Pass by pass, the parts add up to what is drawn and said, at most to the peak. */
    charts.forEach((chart, i) => {
      let most = 0;
      chart.fire("keydown", { key: "Home" });
      for (let k = 0; k < stages[i].course.pass.length; k++) {
        const parts = [...page.byId("tip").textContent.matchAll(/: ([0-9.]+)\u00a0GiB/g)].map(match => Number(match[1]));
        const together = parts.pop();
        assert.ok(Math.abs(parts.reduce((a, b) => a + b, 0) - together) < 0.006 * (parts.length + 1), `pass ${k} of stage ${i}`);
        most = Math.max(most, together);
        chart.fire("keydown", { key: "ArrowRight" });
      }
      assert.ok(Math.abs(most - stages[i].peak_bytes / 2 ** 30) < 0.006, `peak of stage ${i}`);
    });
  },

  "simulate: nodes that are off"() {
    fs.writeFileSync(inFolder("saving.yaml"),
      `${fs.readFileSync(example("cluster/cluster.yaml"), "utf8")}power_saving: {after_s: 600, wake_s: 120}\n`);
    run("simulate", "saving.yaml", example("cluster/trace.csv"), "--profiles", example("cluster/profiles"),
      "--policy", "fcfs,ergon", "--output", "saving");
    const page = openPage(inFolder("saving/report.html"), ["policies"]);
    checkWhole(page);
    assert.strictEqual(page.byId("course").all("svg").length, 5);
    const heads = page.byId("policies").all("thead")[0].all("th").map(th => th.textContent);
    assert.ok(heads.includes("nodes woken"));
    for (const policy of page.data.policies) {
      const off = policy.course.off_gpus.reduce((a, b) => a + b, 0) * policy.step_s;
      near(off, policy.summary.off_gpu_s, 1e-6, `GPUs off under ${policy.name}`);
    }
  },

  "simulate: policies side by side and over time"() {
    run("simulate", example("cluster/cluster.yaml"), example("cluster/trace.csv"), "--profiles", example("cluster/profiles"),
      "--policy", "fcfs,arena,ergon,ergon-thrifty", "--output", "simulate");
    const page = openPage(inFolder("simulate/report.html"), ["policies", "METRICS"]);
    checkWhole(page);
    const rows = rowsOf(page, "policies"), heads = page.byId("policies").all("thead")[0].all("th").map(th => th.textContent);
    same(rows.map(row => row.children[0].nodes[1]), ["fcfs", "arena", "ergon", "ergon-thrifty"]);
    /* Not beside a variant of its own. */
    assert.match(page.byId("headline").textContent, /^Under ergon a job waits and runs .* on average: .* less time than under arena, the next best policy\.$/);
    /* A number and its unit are the value; in bold is the best of a column. */
    for (const [title, key, units, less] of page.METRICS) {
      const column = heads.indexOf(title), values = page.data.policies.map(p => p.summary[key]);
      rows.forEach((row, i) => {
        const [shown, unit] = column < 0 ? ["0"] : row.children[column].textContent.split("\u00a0");
        if (column >= 0 && values[i] !== null)
          near(Number(shown.replace(/,/g, "")) * (unit ? units.find(([name]) => name === unit)[1] : 1), values[i], 0.006,
            `${title} of policy ${i}`);
      });
      const bold = column < 0 ? [] : rows.flatMap((row, i) => (row.children[column].all("b").length ? [values[i]] : []));
      for (const value of bold) assert.strictEqual(value, (less ? Math.min : Math.max)(...values), title);
    }
    const courses = page.byId("course").all("svg");
    assert.strictEqual(courses.length, 4);
    courses[0].fire("pointermove", { clientX: 400 });
    assert.match(page.byId("tip").textContent, /^after .*\nfcfs: .*\narena: .*\nergon: .*\nergon-thrifty: /);
    const guides = courses.map(svg => svg.all(e => e.getAttribute("class") === "guide")[0].getAttribute("x1"));
    assert.ok(guides.every(x => x === guides[0]), "all cursors move together");
    assert.strictEqual(page.byId("completion").all("svg")[0].all(e => e.tag === "path").length, 4);
    const [first] = page.byId("gpus-controls").all("button");
    first.fire("click");
    const canvas = page.byId("gpus").all("canvas")[0];
    assert.match(canvas.getAttribute("aria-label"), /under fcfs/);
    assert.ok(canvas.painted.length > 100);
    canvas.fire("pointermove", { clientX: 400, clientY: 50 });
    assert.match(page.byId("tip").textContent, /node/);
    checkWhole(page);
  },

  "sweep: a case is chosen, loads are compared"() {
    fs.writeFileSync(inFolder("sweep.yaml"), sweepText(example));
    run("simulate", "--sweep", "sweep.yaml", "--output", "sweep");
    const page = openPage(inFolder("sweep/report.html"), ["shown", "METRICS"]);
    checkWhole(page);
    assert.strictEqual(rowsOf(page, "policies").length, 2);
    assert.strictEqual(page.shown.load.load, 1);
    const select = page.byId("choices").all("select")[1];
    select.selectedIndex = page.shown.group.loads.findIndex(load => load.load === 0.5);
    const before = page.byId("policies").textContent;
    select.fire("change");
    assert.strictEqual(page.shown.load.load, 0.5);
    assert.notStrictEqual(page.byId("policies").textContent, before);
    assert.strictEqual(page.byId("loads").all("svg").length, 6);
    page.byId("loads").all("svg")[0].fire("keydown", { key: "ArrowRight" });
    assert.match(page.byId("tip").textContent, /^load 1\narena: .*\nergon: /);
    const caps = page.byId("caps").all("svg")[0];
    assert.strictEqual(caps.all("path").length, 2);
    caps.fire("keydown", { key: "ArrowRight" });
    assert.match(page.byId("tip").textContent, /^arena, 60\u00a0% of the power\n.* waiting and running, /);
    caps.fire("keydown", { key: "ArrowRight" });
    caps.fire("keydown", { key: "ArrowDown" });
    assert.match(page.byId("tip").textContent, /^ergon, 100\u00a0% of the power\n/);
    checkWhole(page);
  },

  "schedule: who has which GPUs, who waits and why"() {
    writeLive("live.html", livePage.status());
    const page = openPage(inFolder("live.html"), []);
    checkWhole(page);
    assert.strictEqual(page.document.title, "ergon schedule: 2 run, 2 wait");
    assert.strictEqual(page.byId("headline").textContent, "2 jobs run on 8 of 12 GPUs; 2 wait.");
    same(page.byId("tiles").children.map(tile => tile.textContent), ["8 of 12GPUs with managed jobs", "1free; 1 with other jobs; 2 on nodes that are not up",
      "2jobs wait", "5.12\u00a0kWof a cap of 9.00\u00a0kW: 56.9\u00a0%"]);
    same(page.byId("trouble").children.map(item => item.textContent), ["Node h002 is down: Not responding", "Job 16 job <b>16</b> of anna: it failed three times"]);
    /* A type's nodes lie together, whatever their order. */
    const groups = page.byId("map").children, squares = page.byId("map").all(e => e.tag === "i");
    same(groups.map(group => group.all("h3")[0].textContent), ["H100 5 of 8 GPUs in use", "A40 4 of 4 GPUs in use"]);
    same(squares.map(square => square.getAttribute("class")), ["managed moving", "managed moving", "foreign", "free",
      "managed moving", "managed moving", "unavailable", "unavailable", "managed", "managed", "managed", "managed"]);
    assert.strictEqual(new Set(squares.slice(8).map(square => square.getAttribute("style"))).size, 1);
    assert.notStrictEqual(squares[0].getAttribute("style"), squares[8].getAttribute("style"));
    same(rowsOf(page, "running").map(cellsOf), [
      ["12 job <b>12</b>anna, vision", "4", "a1", "1", "33\u00a0%333 of 1,000", "840\u00a0ms", rowsOf(page, "running")[0].children[6].textContent, "2"],
      ["14 job <b>14</b>anna, vision", "4 → 6stopping", "h[001-003], h10, x", "1", "–", "–", "–", "0"]]);
    assert.match(rowsOf(page, "running")[0].children[6].textContent, /^in 2\u00a0h 3\u00a0min.*\d\d:\d\d$/);
    assert.match(rowsOf(page, "running")[0].all("i")[1].getAttribute("style"), /^width:33\.3%$/);
    const waiting = rowsOf(page, "waiting").map(cellsOf);
    same(waiting.map(cells => [cells[1], cells[2], cells[4]]), [["8", "2\u00a0h 1\u00a0min", "not enough GPUs are free"], ["–", "2\u00a0h 1\u00a0min", "it failed three timesneeds attention"]]);
    assert.match(waiting[0][3], /^in 1\u00a0min (30|29|28)\u00a0s/);
    assert.strictEqual(page.byId("over-text").textContent, "Over: 1 ended, 1 cancelled.");
    same(rowsOf(page, "notes").map(row => row.children[1].textContent), ["job 12: place", "job 14: stop"]);
    assert.strictEqual(page.byId("state").hidden, true);
  },

  "schedule: pointing and keys on the GPUs"() {
    const page = openPage(inFolder("live.html"), []), map = page.byId("map"), squares = map.all(e => e.tag === "i"), tip = page.byId("tip");
    const lit = () => squares.filter(square => / lit$/.test(square.getAttribute("class"))).length;
    map.fire("pointermove", { target: squares[0] });
    assert.strictEqual(tip.textContent, "h001, GPU 0, H100\njob 14 job <b>14</b> of anna\nstopping, 4 GPUs, progress unknown");
    assert.strictEqual(lit(), 4);
    map.fire("pointermove", { target: squares[2] });
    assert.match(tip.textContent, /^h001, GPU 2, H100\njob 99, which is not managed by ergon$/);
    assert.strictEqual(lit(), 1);
    map.fire("pointermove", { target: map });
    assert.strictEqual(tip.hidden, true);
    map.fire("keydown", { key: "Home" });
    map.fire("keydown", { key: "ArrowDown" });
    assert.match(tip.textContent, /^h002, GPU 0, H100\njob 14 .*\n.*\nnode: down, Not responding$/);
    map.fire("keydown", { key: "ArrowDown" });
    map.fire("keydown", { key: "ArrowRight" });
    assert.match(tip.textContent, /^a1, GPU 1, A40\njob 12 .*\nrunning, 4 GPUs, 33\u00a0% done$/);
    map.fire("keydown", { key: "End" });
    map.fire("keydown", { key: "ArrowRight" });
    assert.match(tip.textContent, /^a1, GPU 3/);
    assert.strictEqual(squares.filter(square => square.getAttribute("id") === "gpu-at").length, 1);
    map.fire("keydown", { key: "Escape" });
    assert.strictEqual(lit(), 0);
    checkWhole(page);
  },

  "schedule: what comes anew, and what does not come"() {
    const page = openPage(inFolder("live.html"), ["take", "fail", "moments"]), state = page.byId("state"), main = state.parentNode;
    const [row] = rowsOf(page, "running"), square = page.byId("map").all(e => e.tag === "i")[3], next = livePage.status();
    next.at_unix_s += 2;
    next.jobs[0].iteration = 500;
    next.nodes[0].gpus[3] = 12;
    next.power.now_w = 6000;
    page.take(next, 0);
    assert.strictEqual(rowsOf(page, "running")[0], row); /* the same element says other things */
    assert.match(row.textContent, /50\u00a0%500 of 1,000/);
    assert.strictEqual(square.getAttribute("class"), "managed");
    const power = () => page.byId("course").all("svg")[0];
    assert.strictEqual(page.moments.length, 2);
    assert.match(power().all("path")[1].getAttribute("d"), /^M[0-9.,]+H[0-9.]+V[0-9.]+$/);
    power().fire("keydown", { key: "ArrowLeft" });
    assert.match(page.byId("tip").textContent, /^\d+\u00a0s ago\ncap 9\.00\u00a0kW\npower 5\.12\u00a0kW$/);
    /* Old, without an answer of the resource manager, without an answer at all, and well again. */
    page.take({ ...next, at_unix_s: next.at_unix_s + 2 }, 75);
    assert.strictEqual(state.textContent, "The controller looked at the cluster last 1\u00a0min 15\u00a0s ago. The page shows that state.");
    assert.strictEqual(main.getAttribute("class"), "old");
    page.take({ ...next, answers: false, at_unix_s: next.at_unix_s + 4 }, 0);
    assert.match(state.textContent, /^The resource manager does not answer\./);
    page.fail("The controller does not answer.");
    assert.match(state.textContent, /^The controller has not answered for \d+\u00a0s\. The page shows the state of \d\d:\d\d:\d\d\.$/);
    page.fail("The controller does not answer.");
    assert.strictEqual(page.moments.length, 5); /* one gap */
    page.take({ ...next, at_unix_s: next.at_unix_s + 6 }, 0);
    assert.strictEqual(state.hidden, true);
    assert.strictEqual(power().all("path")[1].getAttribute("d").split("M").length, 3);
    checkWhole(page);
    /* A long time: the older moments are thinned out, the newest stay. */
    for (let i = 0; i < 3000; i++) page.moments.push({ ms: Date.now() + i, power: 1, cap: 2, busy: 3, waiting: 4 });
    page.take({ ...next, at_unix_s: next.at_unix_s + 8 }, 0);
    assert.ok(page.moments.length < 2400, page.moments.length);
    for (let i = 1; i < page.moments.length; i++) assert.ok(page.moments[i].ms >= page.moments[i - 1].ms - 3000);
  },

  "schedule: many jobs, none, and nothing known"() {
    const many = livePage.status(), [, , waiting] = many.jobs;
    many.jobs = Array.from({ length: 120 }, (_, i) => ({ ...waiting, id: 1000 + i, token: `t${i}` }));
    many.notes = many.notes.map(note => ({ ...note, why: "a job came", gain: "12 min", cost: note.text === "job 12: place" ? "40 s" : undefined }));
    many.power.cap_w = null;
    writeLive("many.html", many);
    let page = openPage(inFolder("many.html"), ["take"]);
    checkWhole(page);
    assert.strictEqual(rowsOf(page, "waiting").length, 50);
    const [more] = page.byId("waiting").all("button");
    assert.strictEqual(more.textContent, "Show all 120 jobs");
    more.fire("click");
    assert.strictEqual(rowsOf(page, "waiting").length, 120);
    page.take({ ...many, jobs: many.jobs.slice(1), at_unix_s: many.at_unix_s + 2 }, 0);
    assert.strictEqual(rowsOf(page, "waiting").length, 119); /* all still */
    assert.match(rowsOf(page, "waiting")[0].textContent, /^1001 /);
    same(page.byId("notes").all("thead")[0].all("th").map(th => th.textContent), ["time", "what", "why", "expected gain", "cost"]);
    same(cellsOf(rowsOf(page, "notes")[1]).slice(1), ["job 14: stop", "a job came", "12 min", "–"]);
    assert.match(page.byId("tiles").textContent, /no cap/);
    writeLive("empty.html", livePage.status({ jobs: [], notes: [], nodes: [], power: {}, answers: true }));
    page = openPage(inFolder("empty.html"), []);
    checkWhole(page);
    assert.strictEqual(page.byId("headline").textContent, "No job runs on the 0 GPUs; none waits.");
    assert.strictEqual(page.byId("running").all("table")[0].hidden, true);
    page.byId("map").fire("keydown", { key: "ArrowRight" });
    writeLive("nothing.html", {});
    page = openPage(inFolder("nothing.html"), ["fail"]);
    page.fail("The controller has not looked at the cluster yet.");
    assert.strictEqual(page.byId("state").textContent, "The controller has not looked at the cluster yet.");
    assert.strictEqual(page.byId("state").parentNode.getAttribute("class"), "empty");
  },

  "train: a run of the host over steps, tokens and time"() {
    prepareTraining(run, inFolder, example);
    process.env.ERGON_POWERCAP = "/nonexistent";
    run("train", "train/tiny.yaml", "--device", "host", "--steps", "12", "--output", "trained");
    const page = openPage(inFolder("trained/report.html"), ["AXES", "shown"]);
    checkWhole(page);
    const { columns } = page.data, loss = () => page.byId("loss-chart").all("svg")[0].all("path")[0].getAttribute("d");
    same(columns.step, [1, 2, 3, 4, 6, 8, 10, 12]);
    assert.strictEqual(loss().split(/[ML]/).length - 1, columns.step.length);
    assert.match(page.byId("headline").textContent, new RegExp(`^The loss fell from ${columns.loss[0].toFixed(3)} to ${columns.loss[7].toFixed(3)} in 12 of 300 steps`));
    assert.match(page.byId("subtitle").textContent, /^tiny-llama, 0\.419\u00a0million parameters, on the host’s CPU: 1,536 tokens/);
    const { memory_items: items, memory_bytes: bytes } = page.data, parts = page.byId("memory-bar").all("i");
    assert.strictEqual(Object.values(items).reduce((sum, item) => sum + item), bytes);
    same(page.byId("memory-legend").children.map(part => part.nodes[1].split(" ")[0]), ["weights", "gradients", "optimizer", "activations", "inputs"]);
    checkOrder(Object.values(items).filter(Boolean), parts.map(part => Number(/width:([0-9.e-]+)%/.exec(part.getAttribute("style"))[1])), 1, "items of memory");
    /* No sensor: neither a chart nor a number of power and energy. */
    assert.ok(!/W|joule|per token/.test(page.byId("tiles").textContent), page.byId("tiles").textContent);
    assert.strictEqual(page.byId("speed-charts").all("svg").length, 1);
    const [steps, tokens, time] = page.byId("axis-choice").all("button"), before = loss();
    tokens.fire("click");
    assert.strictEqual(tokens.getAttribute("aria-pressed"), "true");
    assert.strictEqual(steps.getAttribute("aria-pressed"), "false");
    assert.strictEqual(loss(), before); /* tokens go with steps */
    time.fire("click");
    const svg = page.byId("loss-chart").all("svg")[0];
    svg.fire("keydown", { key: "ArrowLeft" });
    assert.match(page.byId("tip").textContent, new RegExp(`^step 10, 1,280 tokens, .*\nloss ${columns.loss[6].toFixed(4)}$`));
    checkWhole(page);
  },

  "train: what ways to run a step save"() {
    const withTrials = trials => {
      changePage(inFolder("trained/report.html"), inFolder("trials.html"), plan => { plan.trials = trials; });
      return openPage(inFolder("trials.html"), []);
    };
    const trials = { best: "ergon point 2", reference: "sequential", changed: "power", unmet: false, series: 2, rounds: 4,
      saved: { time: 0.1234, time_uncertainty: 0.0041, energy: 0.098, energy_uncertainty: null },
      ways: [way("sequential", 100, 0.5, 71, 2.5), way("nanobatching", 95, null, null, null, 1), way("ergon point 2", 87.66, 0.4, 64, 2.5),
        way("ergon point 1", null, null, null, null, 0)] };
    const page = withTrials(trials);
    checkWhole(page);
    assert.match(page.byId("trials-text").textContent, /^ergon point 2 saves 12\.3 ± 0\.4\u00a0% of the time and an unknown share of the energy of a step compared with sequential/);
    assert.match(page.byId("trials-text").textContent, /series 2, which began because the power of a step had changed\.$/);
    same(rowsOf(page, "trials-table").map(cellsOf), [["sequential", "100.0 ± 0.5\u00a0ms", "71 ± 3\u00a0J", "20 in 4 rounds"],
      ["nanobatching", "95.0\u00a0ms", "–", "5 in 1 round"], ["ergon point 2", "87.7 ± 0.4\u00a0ms", "64 ± 3\u00a0J", "20 in 4 rounds"]]);
    assert.match(withTrials({ ...trials, best: "sequential", changed: null, unmet: true }).byId("trials-text").textContent, /^sequential is the best of the ways .* No tried way meets the goal\.$/);
  },

  "train: GPUs with energy and a validation loss"() {
    changePage(inFolder("trained/report.html"), inFolder("gpus.html"), plan => Object.assign(plan, gpuRun()));
    const page = openPage(inFolder("gpus.html"), []);
    checkWhole(page);
    assert.strictEqual(page.byId("headline").textContent, "The loss fell from 52.000 to 2.125 in 4,000 steps.");
    const tiles = page.byId("tiles").children.map(tile => tile.textContent);
    for (const text of ["2.225validation loss", "262,144tokens per second, 32,768 on a GPU", "50.0\u00a0%of the GPU’s peak FLOPs (MFU)",
      "5,500\u00a0Wpower of all GPUs", "21.0\u00a0mJenergy per token, ±\u00a00.1\u00a0mJ", "3.50\u00a0MJenergy of the run so far"])
      assert.ok(tiles.includes(text), `${text} in ${JSON.stringify(tiles)}`);
    assert.strictEqual(page.byId("speed-charts").all("svg").length, 4);
    const marks = page.byId("loss-chart").all("svg").pop().all("circle");
    assert.strictEqual(marks.length, 4); /* validations */
    checkOrder([2.6, 2.35, 2.267, 2.225], marks.map(mark => number(mark, "cy")), -1, "validation losses");
    const band = page.byId("speed-charts").all("svg")[1].all("path")[0].getAttribute("d");
    assert.strictEqual(band.split("L").length, 2 * (page.data.columns.step.length - 1));
    assert.strictEqual(page.byId("trials-table").all("table").length, 0);
    page.byId("speed-charts").all("svg")[1].fire("keydown", { key: "ArrowLeft" });
    assert.match(page.byId("tip").textContent, /\n21\.0\u00a0mJ ± 0\.1\u00a0mJ per token$/);
  },
};

let failed = 0;
for (const [name, test] of Object.entries(tests)) {
  try {
    test();
    console.log(`ok       ${name}`);
  } catch (error) {
    failed++;
    console.log(`FAILED   ${name}\n${error.stack}`);
  }
}
fs.rmSync(folder, { recursive: true });
process.exit(failed ? 1 : 0);
