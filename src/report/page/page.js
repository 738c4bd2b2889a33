/* The page: headline, tables, the recipe of a point, and who draws what where. */

const state = {
  kept: { method: (plan.selected || {}).method, point: (plan.selected || {}).point },
  own: () => state.kept.method === (plan.selected || {}).method && state.kept.point === (plan.selected || {}).point,
};
const job = plan.job || {}, devices = KINDS_OF_GPUS.map(kind => kind.device || kind.gpu).filter(Boolean).join(" and ");
const ours = methodOf("ergon") || methodOf(state.kept.method); /* the method the page is about */
const pointOf = (key, index) => { const method = methodOf(key); return method && method.points[index]; };

function headline() {
  byId("job-name").textContent = job.name || "";
  document.title = `ergon report: ${job.name || "plan"}`;
  const start = pointOf("sequential", 0), end = pointOf(state.kept.method, state.kept.point);
  const iso = ours && ours.versus.iso_time_energy_reduction_percent, hasIso = isNumber(iso) && Math.abs(iso) >= 0.05;
  /* Without the sequential method in the plan, the fastest point still knows its percentages. */
  const versus = state.kept.point === 0 ? (methodOf(state.kept.method) || { versus: {} }).versus : {};
  const saved = start && end
    ? [reduction(end.time_s, start.time_s), reduction(end.energy_j, start.energy_j)]
    : [versus.max_throughput_time_reduction_percent, versus.max_throughput_energy_reduction_percent];
  if (saved.every(isNumber))
    byId("headline").textContent = `An iteration of this training takes ${lessOrMore(saved[0], "time")} and ${lessOrMore(saved[1], "energy")} with the selected plan.`;
  if (!plan.job) return;
  const layers = list(job.layers), gpus = list(plan.stages).length ? (job.pipeline || 1) * (job.gpus_per_stage || 1) : 0;
  byId("subtitle").textContent = [
    saved.every(isNumber) ? "Compared with one kernel after the other at the highest clock, as training frameworks run it." : "",
    `${job.model || "A model"} on ${gpus ? plural(gpus, "GPU") : "GPUs"}` +
      `${job.data > 1 ? ` in each of ${job.data} copies` : ""} (${devices || "unknown device"}): ` +
      `${plural(job.pipeline || 1, "pipeline stage")}` + (layers.length ? ` of ${new Set(layers).size === 1 ? plural(layers[0], "layer") : `${layers.join(", ")} layers`}` : "") +
      `, tensor degree ${job.tensor || 1}` + (job.sequence_parallel ? " with sequence parallelism" : "") + (job.context > 1 ? `, context degree ${job.context}` : "") +
      (job.virtual_stages > 1 ? `, ${job.virtual_stages} virtual stages` : "") + ".",
    `One iteration trains on ${job.microbatches || "?"} ${job.microbatches === 1 ? "microbatch" : "microbatches"} of ${job.microbatch_size || "?"} × ${job.sequence || "?"} tokens.`,
  ].filter(Boolean).join(" ");
  sayNext("choose a point by its time with ", code("ergon show plan.json --deadline SECONDS"), ", and train with it: ", code("ergon train job.yaml --plan plan.json"), ".");
  if (!end) return;
  const clocks = pointOf("sequential+clocks", 0), tokens = job.microbatches * job.microbatch_size * job.sequence;
  const perToken = point => digits(point.energy_j / tokens * 1e3), before = text => (start ? `, ${text(start)} before` : "");
  byId("tiles").append(
    tile(time(end.time_s), `per iteration${before(p => time(p.time_s))}`),
    tile(energy(end.energy_j), `per iteration${before(p => energy(p.energy_j))}`),
    ...(clocks && hasIso ? [tile(percent(Math.abs(iso)),
      `${iso > 0 ? "less" : "more"} energy than sequential + clocks in the same ${time(clocks.time_s)}`)] : []),
    ...(tokens > 0 ? [tile(`${perToken(end)}\u00a0mJ`, `per token${before(perToken)}`)] : []));
}

function comparison() {
  const columns = [["fastest time", m => time((m.points[0] || {}).time_s)], ["its energy", m => energy((m.points[0] || {}).energy_j)],
    ["time saved\u00a0¹", m => percent(m.versus.max_throughput_time_reduction_percent)],
    ["energy saved\u00a0¹", m => percent(m.versus.max_throughput_energy_reduction_percent)],
    ["energy saved, same time\u00a0²", m => percent(m.versus.iso_time_energy_reduction_percent)],
    ["time saved, same energy\u00a0³", m => percent(m.versus.iso_energy_time_reduction_percent)]];
  byId("comparison-table").append(h("table", {}, caption("Time and energy of each way to run the iteration"),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "method"), columns.map(([title]) => h("th", { scope: "col" }, title)))),
    h("tbody", {}, METHODS.map(method => h("tr", { class: method.key === "ergon" ? "ours" : null },
      h("th", { scope: "row" }, markIcon(method), method.title, h("small", {}, method.what)),
      columns.map(([title, text]) => h("td", { "data-label": title }, text(method))))))));
  const missing = METHODS.some(m => !isNumber(m.versus.iso_time_energy_reduction_percent) || !isNumber(m.versus.iso_energy_time_reduction_percent));
  byId("comparison-reason").textContent = missing
    ? `${NONE} means that no plan of the method is that fast (2) or that frugal (3), so there is nothing to compare.` : "";
}

/* How often each option of a point is used, as a map from a text to a count, by `key(option)`. */
function counts(point, entry, direction, key) {
  const runs = list((list(point.uses)[entry] || {})[direction]), found = new Map();
  const options = (((plan.stages || [])[entry] || {})[direction] || { options: [] }).options;
  for (let i = 0; i + 1 < runs.length; i += 2)
    for (const value of [key(options[runs[i]] || {})].flat())
      found.set(value, (found.get(value) || 0) + runs[i + 1]);
  return [...found].sort((a, b) => b[1] - a[1]);
}

/* GPUs that chose their clocks themselves ran at none of those that the plan names. */
const choseClocks = kind => isNumber(kind.mean_clock_mhz);
function defaultClock(kind) {
  return `default clock, mean ${Math.round(kind.mean_clock_mhz)}\u00a0MHz`;
}

const gpuLine = kind => (gpuText(kind) ? h("div", { class: "quiet" }, gpuText(kind, "")) : null);

/* "8 × 1410 MHz", or for many clocks "900 to 1410 MHz, mostly 1230 (107 of 128)". */
function clocksText(used, kind) {
  if (!used.length) return NONE;
  if (choseClocks(kind)) return defaultClock(kind);
  if (used.length <= 3) return `${used.map(([clock, count]) => `${count}\u00a0×\u00a0${clock}`).join(", ")}\u00a0MHz`;
  const most = used.reduce((a, b) => (b[1] > a[1] ? b : a)), all = used.reduce((sum, [, count]) => sum + count, 0);
  return `${used[used.length - 1][0]} to ${used[0][0]}\u00a0MHz, mostly ${most[0]} (${most[1]} of ${all})`;
}

function recipe(method, point, index) {
  const start = pointOf("sequential", 0), directions = ["forward", "backward"];
  const clocks = h("table", {}, caption("Clocks of the microbatches of each stage"), h("tbody", {}, list(plan.stages).flatMap((stage, entry) => directions.map(direction => {
    const used = counts(point, entry, direction, option => option.clock_mhz).sort((a, b) => b[0] - a[0]);
    const modes = counts(point, entry, direction, option => option.mode);
    return h("tr", {}, h("th", { scope: "row" }, `stage ${stage.stage}${stage.chunk ? `.${stage.chunk}` : ""} ${direction}`, gpuLine(kindOf(stage))),
      h("td", {}, clocksText(used, kindOf(stage)),
        modes.length > 1 || (modes[0] && modes[0][0] !== "sequential")
          ? h("span", { class: "quiet" }, ` ${modes.map(([mode, count]) => (modes.length > 1 ? `${count} × ${mode}` : mode)).join(", ")}`) : null));
  }))));
  const schedules = new Map();
  list(plan.stages).forEach((stage, entry) => directions.forEach(direction =>
    counts(point, entry, direction, option => list(option.configurations).map(one => `${one.partition}|${stage.kind || 0}|${one.slot}, ${one.sms} SMs`))
      .forEach(([text, count]) => {
        const [partition, kind, schedule] = text.split("|"), row = `${partition}|${kind}`, one = schedules.get(row) || new Map();
        schedules.set(row, one.set(schedule, (one.get(schedule) || 0) + count));
      })));
  return [
    h("p", {}, markIcon(method), ` ${method.title}, plan ${index + 1} of ${method.points.length}`),
    h("p", { class: "big" }, `${time(point.time_s)}, ${energy(point.energy_j)}`),
    start ? h("p", { class: "quiet" }, `${lessOrMore(reduction(point.time_s, start.time_s), "time")} and ` +
      `${lessOrMore(reduction(point.energy_j, start.energy_j), "energy")} than sequential at full clock`) : null,
    h("h3", {}, "Clocks of the microbatches"), clocks,
    schedules.size ? h("h3", {}, "Launch slot and SMs of communication") : null,
    schedules.size ? h("table", {}, caption("When communication starts, and on how many SMs"), h("tbody", {}, [...schedules].map(([row, one]) => {
      const [partition, kind] = row.split("|");
      const sorted = [...one].sort((a, b) => b[1] - a[1]), rest = sorted.length - 4;
      return h("tr", {}, h("th", { scope: "row" }, partition, gpuLine(KINDS_OF_GPUS[kind] || {})),
        h("td", {}, sorted.slice(0, 4).map(([schedule, count]) => h("div", {}, `${count} × ${schedule}`)),
          rest > 0 ? h("div", { class: "quiet" }, `and ${rest} more`) : null));
    }))) : null,
  ].filter(Boolean);
}

function provenance() {
  const m = plan.measurements || {}, p = plan.profiler || {}, q = plan.search || {}, rows = [
    ...KINDS_OF_GPUS.flatMap(kind => [
      ["device", kind.identity || kind.device],
      ["how far its model was checked", kind.confidence],
      ["clocks", choseClocks(kind) ? defaultClock(kind) : list(kind.clocks_mhz).length && `${kind.clocks_mhz.length}, ${Math.min(...kind.clocks_mhz)} to ${Math.max(...kind.clocks_mhz)} MHz`],
      ["assumed power", [isNumber(kind.blocking_power_w) && `${kind.blocking_power_w} W while waiting`,
        isNumber(kind.static_power_w) && `${kind.static_power_w} W static`, isNumber(kind.power_cap_w) && `${kind.power_cap_w} W power cap`].filter(Boolean).join(", ")]]),
    ["profiler", isNumber(p.window_s) && `${p.window_s} s window, ${p.cooldown_s} s cooldown`],
    ["search", q.method && `${q.method}, up to ${q.budget} energy measurements per partition` + (q.sweep_clocks ? `, ${plural(q.sweep_clocks, "clock")} swept for time` : "") + (q.prior && q.prior !== "none" ? `, prior ${q.prior}` : "")],
    ["measurements", isNumber(m.energy) && `${m.energy} of time and energy, ${m.time_only || 0} of time alone` +
      (m.cached ? `, ${m.cached} answered by the store` : "") + (m.verified ? `; ${m.verified} of them because a plan uses the configuration` : "")],
    ["device time", isNumber(m.device_seconds) && `${Math.round(m.device_seconds)} s${(KINDS_OF_GPUS[0] || {}).emulated ? " (emulated)" : ""}`],
    ["parallelism", job.schedule && `${job.schedule}, tensor ${job.tensor}, context ${job.context}, pipeline ${job.pipeline}` +
      `${job.data ? `, data ${job.data}` : ""}, recomputation ${job.recompute}`],
    ["a step beyond its iteration", plan.beyond && isNumber(plan.beyond.time_s) && `${time(plan.beyond.time_s)} and ${energy(plan.beyond.energy_j)} ` +
      `of all GPUs of the pipeline: ${time(plan.beyond.gradients_s)} sum gradients and gather weights, ${time(plan.beyond.optimizer_s)} optimize`],
    ["software stack", job.stack], ["selected plan", (plan.selected || {}).rule], ["seed", isNumber(plan.seed) && String(plan.seed)],
    ["made", `ergon ${plan.ergon_version || "?"}, plan format ${plan.schema_version}, ${plan.created_utc || "?"}`]];
  byId("provenance-list").append(h("dl", {}, rows.filter(([, text]) => text).flatMap(([name, text]) => [h("dt", {}, name), h("dd", {}, text)])));
}

/* Draws one section; a plan with a part that is missing or broken costs that section only. */
function section(id, draw) {
  try {
    const result = draw();
    byId(id).hidden = result === false;
    return result;
  } catch (error) {
    byId(id).append(h("p", { class: "quiet" }, `This part of the plan could not be drawn (${error.message}).`));
    return null;
  }
}

function showPoint(method, index, kept) {
  if (kept) {
    state.kept = { method: method.key, point: index };
    energyBars(byId("breakdown-bars"), state);
    if (showTimelines) showTimelines();
    say(`${method.title}, plan ${index + 1} of ${method.points.length}, is kept; the energy and the pipeline below show it.`);
  }
  const one = method || methodOf(state.kept.method), at = method ? index : state.kept.point;
  const point = one && one.points[at];
  byId("recipe").replaceChildren(...(point ? recipe(one, point, at) : [h("p", { class: "quiet" }, "No plan is selected.")]));
}

headline();
byId("legend").append(...METHODS.map(method => h("span", {}, markIcon(method), method.title)));
section("comparison", () => METHODS.length > 0 && comparison());
section("breakdown", () => METHODS.length > 0 && energyBars(byId("breakdown-bars"), state));
const showTimelines = section("pipeline", () =>
  pipelineCharts(byId("pipeline-charts"), byId("pipeline-controls"), byId("pipeline-note"), state) || false);
section("partitions", () => partitionCharts(byId("partition-charts"), byId("partition-legend")));
section("progress", () => progressCharts(byId("progress-charts")));
section("provenance", provenance);
section("frontiers", () => {
  frontierChart(byId("frontier-chart"), state, showPoint);
  showPoint(null);
});
