/* The page of a run: its loss, speed, power and energy over steps, tokens or time. */
const columns = plan.columns || {};
const column = key => list(columns[key]);
const rows = column("step").length;
const lastOf = key => column(key).filter(isNumber).pop();
const onHost = plan.device === "host";
const grouped = value => Math.round(value).toLocaleString("en");
const modelName = String(plan.model).replace(/\/config\.json$/, "").replace(/.*\//, "");
const minus = text => text.replace("-", "−");

/* ---- the axis of all charts ---- */
const COUNT_UNITS = [["billion ", 1e9], ["million ", 1e6], ["thousand ", 1e3], ["", 1]];
const LONG_TIMES = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
function axisOf(key, name, titleOf, units) {
  const most = lastOf(key) || 1, [unit, size] = units.find(([, size]) => most >= 2 * size) || units[units.length - 1];
  return { name, title: titleOf(unit), values: column(key).map(value => value / size) };
}
const AXES = {
  step: axisOf("step", "steps", () => "steps", [["", 1]]),
  tokens: axisOf("tokens", "tokens", unit => `${unit}tokens`, COUNT_UNITS),
  time: axisOf("time_s", "time", unit => `time in steps (${unit})`, LONG_TIMES),
};
const shown = { axis: AXES.step }, redraws = [];

function placeText(i) {
  return `step ${grouped(column("step")[i])}, ${grouped(column("tokens")[i])} tokens, ${quantity(column("time_s")[i], LONG_TIMES)}`;
}

/* ---- a chart: lines [{values, color, text?, wide?, faint?, marks?}] of one unit, with a band ± around the first ---- */
function pathOf(values, x, y) {
  let pen = "M", path = "";
  values.forEach((value, i) => {
    if (isNumber(value)) path += `${pen}${x(i).toFixed(1)},${y(value).toFixed(1)}`;
    pen = isNumber(value) ? "L" : pen;
  });
  return path;
}

/* Means over a fortieth of the rows around each. */
function smooth(values) {
  const reach = Math.floor(rows / 80);
  return values.map((value, i) => {
    const near = values.slice(Math.max(0, i - reach), i + reach + 1).filter(isNumber);
    return isNumber(value) ? near.reduce((a, b) => a + b, 0) / near.length : null;
  });
}

/* The range of a loss after the first twentieth of a run with many rows: the values before would leave the rest
 * a flat line. */
function rangeOfLoss(lines) {
  const from = rows > 160 ? Math.floor(rows / 20) : 0;
  return limits(lines.flatMap(line => line.values.slice(from)).filter(isNumber), 0.05, from ? 0.25 : 0.05);
}

/* The range of values without outliers, such as the first step's time; the scale begins at 0 if `zero`. */
function rangeOf(values, zero) {
  const sorted = values.filter(isNumber).sort((a, b) => a - b), at = share => sorted[Math.round(share * (sorted.length - 1))];
  const [low, high] = [at(0.01), at(0.99)], room = (high - low || Math.abs(high) || 1) * 0.6;
  const kept = sorted.filter(value => value >= low - room && value <= high + room);
  const [bottom, top] = limits(kept, 0.06, 0.06);
  return zero ? [0, Math.max(top, kept[kept.length - 1] * 1.08)] : [kept[0] >= 0 ? Math.max(0, bottom) : bottom, top];
}

let charted = 0;
function courseChart(place, { title, lines, band, zero, range, tall }) {
  const [low, high] = range || rangeOf(lines.flatMap(line => line.values), zero), clip = `chart-${charted++}`;
  const draw = width => {
    const height = tall ? Math.round(Math.min(380, Math.max(260, width * 0.36))) : 220;
    const margin = { left: 58, right: 14, top: 26, bottom: 42 }, { axis } = shown;
    const { frame, atX, atY } = axes(width, height, margin,
      { low: Math.min(0, axis.values[0]), high: axis.values[rows - 1] || 1, title: axis.title }, { low, high, title, ticks: ticks(low, high, tall ? 6 : 4) });
    const x = i => atX(axis.values[i]), y = atY;
    const bandPath = band ? band.map((half, i) => [i, lines[0].values[i], half]).filter(([, value, half]) => isNumber(value) && isNumber(half)) : [];
    const edge = sign => bandPath.map(([i, value, half]) => `${x(i).toFixed(1)},${y(value + sign * half).toFixed(1)}`);
    const svg = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: "application",
      "aria-label": `${title} over ${axis.name}. Arrow keys move along it.` }, frame,
    s("clipPath", { id: clip }, s("rect", { x: margin.left, y: margin.top - 6, width: width - margin.left - margin.right + 6, height: height - margin.top - margin.bottom + 12 })),
    s("g", { "clip-path": `url(#${clip})` },
      bandPath.length ? s("path", { d: `M${[...edge(1), ...edge(-1).reverse()].join("L")}Z`, fill: lines[0].color, class: "band", opacity: 0.18 }) : null,
      lines.map(line => [
        s("path", { d: pathOf(line.values, x, y), fill: "none", stroke: line.color, "stroke-width": line.wide ? 2.4 : 1.4,
          "stroke-linejoin": "round", class: line.faint ? "faint" : null, opacity: line.faint ? 0.35 : 1 }),
        line.marks || line.values.filter(isNumber).length === 1
          ? line.values.map((value, i) => (isNumber(value) ? s("circle", { cx: x(i), cy: y(value), r: 3.4, fill: line.color }) : null)) : null])));
    const textAt = i => [placeText(i), ...lines.filter(line => line.text && isNumber(line.values[i])).map(line => line.text(line.values[i], i))].join("\n");
    addCursor(svg, { top: margin.top, bottom: height - margin.bottom, places: axis.values.map((value, i) => x(i)), at: rows - 1, textAt });
    place.replaceChildren(svg);
  };
  let width = 0;
  drawToWidth(place, now => draw(width = now));
  redraws.push(() => { if (width) draw(width); });
}

/* A card, if its values are known. */
function card(parent, heading, text, chart) {
  if (!chart.lines.some(line => line.values.some(isNumber))) return;
  const place = h("div", {});
  byId(parent).append(h("div", {}, h("h3", {}, heading), h("p", {}, text), place));
  courseChart(place, chart);
}

/* ---- the parts of the page ---- */
function choices() {
  const buttons = Object.values(AXES).map(axis => h("button", { type: "button", "aria-pressed": String(axis === shown.axis), onclick: () => {
    shown.axis = axis;
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(Object.values(AXES)[i] === axis)));
    redraws.forEach(redraw => redraw());
  } }, axis.name));
  byId("axis-choice").append(h("span", {}, "All charts over"), h("span", { class: "choice", role: "group", "aria-label": "axis of the charts" }, buttons));
}

/* [value, uncertainty] as text, both to the first digit of the uncertainty. */
function perToken(value, half) {
  const [unit, size] = unitOf(value, ENERGY_UNITS);
  if (!isNumber(half) || half <= 0) return [`${digits(value / size)}\u00a0${unit}`, "not known"];
  const places = Math.min(9, Math.max(0, -Math.floor(Math.log10(half / size))));
  return [value, half].map(number => `${(number / size).toFixed(places)}\u00a0${unit}`);
}

function heading() {
  const step = lastOf("step"), loss = lastOf("loss"), validation = lastOf("validation_loss");
  byId("job-name").textContent = plan.job || "";
  const done = `${step < plan.updates ? `${grouped(step)} of ` : ""}${grouped(plan.updates)} step${plan.updates === 1 ? "" : "s"}`;
  const began = column("loss").find(isNumber), path = began > loss ? `fell from ${began.toFixed(3)} to` : began < loss ? `rose from ${began.toFixed(3)} to` : "is";
  byId("headline").textContent = isNumber(loss) ? `The loss ${path} ${loss.toFixed(3)} in ${done}.` : `No loss is known after ${done}.`;
  if (step < plan.updates)
    sayNext("continue from the last checkpoint with the same command: ", code("ergon train job.yaml --output DIR"), ".");
  else
    sayNext("write the weights in Hugging Face's format: ", code("ergon train job.yaml --output DIR --export WEIGHTS"), ".");
  const where = onHost ? "the host’s CPU" : `${plan.ranks > 1 ? `${plan.ranks} × ` : ""}${plan.device}`;
  byId("subtitle").textContent = `${modelName}, ${quantity(plan.parameters, [["billion", 1e9], ["million", 1e6]])} parameters, on ${where}: ` +
    `${grouped(lastOf("tokens"))} tokens so far, ${plural(plan.batch, "sequence")} of ${grouped(plan.sequence)} tokens in a step.`;
  const [known, uncertainty] = perToken(lastOf("j_per_token"), lastOf("j_per_token_uncertainty"));
  const speed = lastOf("tokens_per_s"), mfu = lastOf("mfu"), power = lastOf("power_w"), joules = lastOf("j_per_token");
  byId("tiles").append(...[
    isNumber(validation) && tile(validation.toFixed(3), "validation loss"),
    tile(grouped(speed), `tokens per second${plan.ranks > 1 && !onHost ? `, ${grouped(speed / plan.ranks)} on a GPU` : ""}`),
    isNumber(mfu) && tile(percent(100 * mfu), "of the GPU’s peak FLOPs (MFU)"),
    isNumber(power) && tile(`${grouped(power)}\u00a0W`, onHost ? "power of the CPUs" : plan.ranks > 1 ? "power of all GPUs" : "power of the GPU"),
    isNumber(joules) && tile(known, uncertainty === "not known" ? "energy per token" : `energy per token, ±\u00a0${uncertainty}`),
    isNumber(plan.energy_j) && tile(energy(plan.energy_j), "energy of the run so far"),
    tile(quantity(lastOf("time_s"), LONG_TIMES), "of time in steps"),
    isNumber(plan.memory_bytes) && tile(quantity(plan.memory_bytes, [["GiB", 2 ** 30], ["MiB", 2 ** 20]]), plan.ranks > 1 ? `memory of the fullest ${onHost ? "rank" : "GPU"}` : "memory"),
  ].filter(Boolean));
}

const lossIcon = (color, marked) => s("svg", { width: 26, height: 12, "aria-hidden": "true" },
  s("line", { x1: 1, x2: 25, y1: 6, y2: 6, stroke: color, "stroke-width": 2.4 }), marked ? s("circle", { cx: 13, cy: 6, r: 3.4, fill: color }) : null);

function lossChart() {
  const loss = column("loss"), validation = column("validation_loss"), noisy = rows > 160;
  const text = name => value => `${name} ${value.toFixed(4)}`;
  const lines = [{ values: loss, color: "var(--sequential-clocks)", faint: noisy, wide: !noisy, text: text("loss") }];
  if (noisy) lines.push({ values: smooth(loss), color: "var(--sequential-clocks)", wide: true });
  const held = validation.some(isNumber);
  if (held) lines.push({ values: validation, color: "var(--dynamic)", wide: true, marks: true, text: text("validation") });
  const place = h("div", {});
  byId("loss-chart").append(...[held ? h("div", { class: "legend" }, h("span", {}, lossIcon("var(--sequential-clocks)", false), "training"), h("span", {}, lossIcon("var(--dynamic)", true), "validation")) : null, place].filter(Boolean));
  if (noisy) byId("loss-text").textContent += " The heavy line is the mean of neighbours; the scale ignores the beginning.";
  courseChart(place, { title: "loss (nats per token)", lines, range: rangeOfLoss(lines), tall: true });
}

function charts() {
  const one = (key, color, text, scale = 1) => [{ values: column(key).map(value => (isNumber(value) ? value * scale : null)), color, wide: true, text }];
  const half = column("j_per_token_uncertainty"), [unit, size] = unitOf(lastOf("j_per_token") || 1, ENERGY_UNITS);
  const [many, speedSize] = unitOf(lastOf("tokens_per_s") / 10, COUNT_UNITS);
  byId("speed-text").textContent = isNumber(lastOf("j_per_token"))
    ? "Means between two lines of the log. The band around the energy per token is its uncertainty, 95\u00a0%."
    : "Means between two lines of the log. This machine has no energy sensor that ergon can read.";
  card("speed-charts", "Speed", "The time of steps alone: checkpoints and pauses do not count.",
    { title: `speed (${many}tokens/s)`, zero: true, lines: one("tokens_per_s", "var(--ergon)", value => `${grouped(value * speedSize)} tokens/s`, 1 / speedSize) });
  card("speed-charts", "Energy per token", onHost ? "All CPU packages, including other work on them." : "All GPUs of the run.",
    { title: `energy (${unit})`, zero: true, band: half.map(value => (isNumber(value) ? value / size : null)),
      lines: one("j_per_token", "var(--dynamic)", (value, i) => `${perToken(value * size, half[i]).join(" ± ")} per token`, 1 / size) });
  card("speed-charts", "Power", onHost ? "All CPU packages." : "All GPUs together.",
    { title: "power (W)", zero: true, lines: one("power_w", "var(--memory-rounding)", value => `${grouped(value)} W`) });
  card("speed-charts", "MFU", "The share of the GPU’s peak FLOPs that the model needs; recomputed operations do not count.",
    { title: "MFU (%)", zero: true, lines: one("mfu", "var(--nanobatching-clocks)", value => `${value.toFixed(1)} %`, 100) });
  card("optimizer-charts", "Norm of the gradient", "Over all parameters, before clipping.",
    { title: "norm", zero: true, lines: one("gradient_norm", "var(--memory-weights)", value => `norm ${digits(value)}`) });
  const most = Math.max(...column("learning_rate").filter(isNumber)), power = most > 0 ? Math.floor(Math.log10(most)) : 0;
  card("optimizer-charts", "Learning rate", "The same for matrices and vectors.",
    { title: `learning rate (10${minus(String(power)).replace(/./g, c => "⁰¹²³⁴⁵⁶⁷⁸⁹⁻"["0123456789−".indexOf(c)])})`, zero: true,
      lines: one("learning_rate", "var(--nanobatching)", value => `rate ${minus((value * 10 ** power).toExponential(2))}`, 10 ** -power) });
}

/* The engine's memory on a device: one bar, its parts named with their sizes. */
function memory() {
  const items = Object.entries(plan.memory_items || {}).filter(([, bytes]) => bytes > 0);
  const all = items.reduce((sum, [, bytes]) => sum + bytes, 0), size = bytes => quantity(bytes, [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]);
  const parts = items.map(([item, bytes], i) => ({ title: `${item} ${size(bytes)}`, number: i + 1, value: bytes, text: percent((100 * bytes) / all),
    color: `var(--memory-${{ messages: "layer", inputs: "other" }[item] || item})` }));
  byId("memory-title").parentNode.hidden = !items.length;
  byId("memory-text").textContent = `${size(all)} of ${onHost ? "memory" : "the GPU"}${plan.ranks > 1 ? ", on the fullest rank" : ""}. All of it is allocated before the first step.`;
  byId("memory-legend").append(...partsLegend(parts));
  byId("memory-bar").append(partsBar(parts, all, `Memory: ${size(all)}`));
}

/* The ways tried on steps of the run, the running way in bold. */
function trials() {
  const found = plan.trials, saved = found && found.saved;
  byId("trials-title").parentNode.hidden = !found;
  if (!found) return;
  /* A value and its uncertainty to the first digit of the latter; an unknown value is a dash. */
  const within = (value, half, unit) => {
    if (!isNumber(value)) return NONE;
    if (!isNumber(half)) return `${digits(value)}\u00a0${unit}`;
    const places = Math.min(6, Math.max(0, half > 0 ? -Math.floor(Math.log10(half)) : 3));
    return minus(`${value.toFixed(places)} ± ${half.toFixed(places)}\u00a0${unit}`);
  };
  const share = key => (isNumber(saved[`${key}_uncertainty`]) ? within(100 * saved[key], 100 * saved[`${key}_uncertainty`], "%") : "an unknown share");
  byId("trials-text").textContent = (found.best === found.reference
    ? `${found.best} is the best of the ways tried on steps of this run.`
    : !isNumber(saved.time_uncertainty)
    ? `${found.best} took least in the only round that the time allowed, which does not show its saving compared with ${found.reference} execution.`
    : `${found.best} saves ${share("time")} of the time and ${share("energy")} of the energy of a step compared with ${found.reference} execution, measured round by round on steps of this run.`) +
    (found.changed ? ` These are the numbers of series ${found.series}, which began because the ${found.changed} of a step had changed.` : "") +
    (found.unmet ? " No tried way meets the goal." : "");
  byId("trials-table").append(h("table", {}, caption("Time and energy of a step, run in each way"),
    h("thead", {}, h("tr", {}, ["way", "time of a step", "energy of a step", "steps measured"].map(text => h("th", { scope: "col" }, text)))),
    h("tbody", {}, list(found.ways).filter(way => way.rounds > 0).map(way => h("tr", {},
      h("th", { scope: "row" }, way.way === found.best ? h("b", {}, way.way) : way.way),
      h("td", { class: "one-line" }, within(way.step_ms, way.step_ms_uncertainty, "ms")),
      h("td", { class: "one-line" }, within(way.step_j, way.step_j_uncertainty, "J")),
      h("td", {}, `${way.steps} in ${plural(way.rounds, "round")}`))))));
}

function provenance() {
  const degrees = [["tensor", plan.tensor], ["context", plan.context], ["pipeline", plan.pipeline], ["virtual stages", plan.virtual_stages], ["data", plan.data]];
  const item = (name, text) => [h("dt", {}, name), h("dd", {}, text)];
  byId("provenance-list").append(h("dl", {},
    item("Model", `${modelName}, ${grouped(plan.parameters)} parameters`),
    item("Device", onHost ? `CPU of ${plan.host}` : `${plan.ranks} × ${plan.device}; the first rank on ${plan.host}`),
    item("Layout", degrees.filter(([, degree]) => degree > 1).map(([name, degree]) => `${name} ${degree}`).join(", ") || "one rank"),
    item("Step", `${plural(plan.batch, "sequence")} of ${grouped(plan.sequence)} tokens, ${plan.microbatch} at a time on a rank; recomputation ${plan.recompute}`),
    plan.by ? item("Plan", `${plan.by.file}, ${plan.by.method}, point ${grouped(plan.by.point)} of ${grouped(plan.by.points)} (${plan.by.rule})${isNumber(plan.by.step_s) ? `: ${time(plan.by.step_s)} and ${energy(plan.by.step_j)} a step expected` : ""}`) : [],
    item("Numbers", `${plan.type} in use, float32 masters`),
    isNumber(plan.memory_bytes) ? item("Memory", `${grouped(plan.memory_bytes)} bytes of the engine${isNumber(plan.memory_outside_bytes) ? `, ${grouped(plan.memory_outside_bytes)} beyond them` : ""}`) : [],
    item("Written", `${plan.written} by ergon ${plan.version}`)));
}

document.title = `ergon train: ${plan.job || ""}`;
if (rows) {
  heading();
  choices();
  lossChart();
  charts();
} else {
  byId("headline").textContent = "No step has been logged yet.";
  sayNext("open this page again later: each checkpoint of ", code("ergon train"), " writes it again.");
  for (const id of ["loss-title", "speed-title", "optimizer-title"]) byId(id).parentNode.hidden = true;
}
trials();
memory();
provenance();
