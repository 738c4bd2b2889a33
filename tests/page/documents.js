/* What pages are made from: files for the commands that write them, and documents other than a page's own, for states of
 * a run that no quick command reaches. */
"use strict";
const fs = require("fs");

/* A sweep of four cases; `example` gives the path of an example. */
const sweepText = example => `clusters: [${example("cluster/cluster.yaml")}]\ntraces: [${example("cluster/trace.csv")}]\n` +
  `profiles: ${example("cluster/profiles")}\npolicies: [arena, ergon]\nloads: [0.5, 1]\npower_caps: [0.6, 1]\nseeds: 2\nresample: true\n`;

/* Makes train/tiny.yaml, a training of short sequences that is logged often. */
function prepareTraining(run, inFolder, example) {
  fs.cpSync(example("train"), inFolder("train"), { recursive: true });
  fs.writeFileSync(inFolder("text"), "what is read here says nothing new. ".repeat(200));
  run("tokenize", "bytes", "text", "--output", "train/tokens");
  const job = inFolder("train/tiny.yaml"), text = fs.readFileSync(job, "utf8");
  fs.writeFileSync(job, text.replace("log_every: 10", "log_every: 2").replace("sequence: 64", "sequence: 16"));
}

/* Writes the page `from` to `to` with its document as change(document) leaves it. */
function changePage(from, to, change) {
  const html = fs.readFileSync(from, "utf8"), start = html.indexOf('id="plan">') + 10, end = html.indexOf("</script>", start);
  const plan = JSON.parse(html.slice(start, end));
  change(plan);
  fs.writeFileSync(to, html.slice(0, start) + JSON.stringify(plan).replace(/</g, "\\u003c") + html.slice(end));
}

/* What a run on 8 GPUs changes in the document of a training: 400 rows of ten steps, every hundredth with a validation. */
function gpuRun() {
  const column = value => Array.from({ length: 400 }, (_, i) => value(10 * (i + 1)));
  return { device: "NVIDIA H100 80GB HBM3", ranks: 8, updates: 4000, energy_j: 3.5e6, columns: {
    step: column(i => i), tokens: column(i => 524288 * i), time_s: column(i => 2 * i), loss: column(i => 2 + 500 / i),
    validation_loss: column(i => (i % 1000 ? null : 2.1 + 500 / i)), gradient_norm: column(() => 0.4), learning_rate: column(i => 3e-4 - 1e-8 * i),
    step_ms: column(() => 2000), tokens_per_s: column(() => 262144), mfu: column(() => 0.5), power_w: column(() => 5500),
    j_per_token: column(() => 0.02098), j_per_token_uncertainty: column(i => (i === 10 ? null : 0.00014)) } };
}

/* A way to run a step in the trials of a training: milliseconds and joules with half the width of their intervals. */
const way = (name, ms, msHalf, joules, joulesHalf, rounds = 4) => ({ way: name, method: name, point: 1, rounds, steps: 5 * rounds,
  step_ms: ms, step_ms_uncertainty: msHalf, step_j: joules, step_j_uncertainty: joulesHalf });

module.exports = { sweepText, prepareTraining, changePage, gpuRun, way };
