/* The page of a live cluster, which no command writes to a file, put together as CMake does, and a status to put into it. */
"use strict";
const fs = require("fs");
const path = require("path");

function write(source, file, status) {
  const read = part => fs.readFileSync(path.join(source, "src/report/page", part), "utf8");
  const parts = { TITLE: "ergon schedule", HEADLINE: "A cluster at work", SECTIONS: read("live.html").replace(/^.*\n/, ""), STYLE: read("report.css"),
    SCRIPT: ["report.js", "charts.js", "live.js"].map(read).join(""), PLAN: JSON.stringify(status).replace(/</g, "\\u003c") };
  fs.writeFileSync(file, read("frame.html").replace(/@([A-Z]+)@/g, (all, key) => parts[key]));
}
function status(changes = {}) {
  const at = Date.now() / 1000;
  const job = (id, phase, rest) => ({ token: `000000000000${id}`, id, name: `job <b>${id}</b>`, user: "anna", account: "vision", phase, reason: null, gpus: 0,
    gpus_intended: 0, nodes: [], point: 1, submitted_unix_s: at - 7260, deadline_unix_s: null, iteration: null, iterations: 1000, iteration_s: null,
    starts_unix_s: null, ends_unix_s: null, starts: 0, needs_attention: false, ...rest });
  const node = (name, type, state, reason, gpus) => ({ name, type, state, reason, gpus });
  return { schema_version: 1, at_unix_s: at, policy: "ergon", compress: 1, answers: true, power: { now_w: 5120, idle_w: 1800, cap_w: 9000 },
    nodes: [node("h001", "H100", "up", null, [14, 14, 99, null]), node("a1", "A40", "up", null, [12, 12, 12, 12]),
      node("h002", "H100", "down", "Not responding", [14, 14, null, null])],
    jobs: [job(12, "running", { gpus: 4, gpus_intended: 4, nodes: ["a1"], iteration: 333, iteration_s: 0.84, ends_unix_s: at + 7380, starts: 3 }),
      job(14, "stopping", { gpus: 4, gpus_intended: 6, nodes: ["h001", "h002", "h003", "h10", "x"], starts: 1 }),
      job(15, "waiting", { reason: "not enough GPUs are free", gpus_asked: 8, starts_unix_s: at + 90 }),
      job(16, "failed", { reason: "it failed three times", needs_attention: true }), job(17, "ended"), job(99, "cancelled")],
    notes: [{ at_unix_s: at - 4000, text: "too long ago" }, { at_unix_s: at - 61, text: "job 14: stop" }, { at_unix_s: at - 60, text: "job 12: place" }], ...changes };
}

module.exports = { write, status };
