/* Shared by all parts of the page: the plan, elements, numbers as text, scales, the tip. */
const plan = JSON.parse(document.getElementById("plan").textContent);
const NONE = "–";
const list = value => (Array.isArray(value) ? value : []);
const isNumber = value => typeof value === "number" && Number.isFinite(value);
const byId = id => document.getElementById(id);

/* The methods in a fixed order, each with its colour, its mark and a description. */
const METHODS = [
  ["sequential", "Sequential, full clock", "square", "compute, then communicate, as in today's training frameworks"],
  ["sequential+clocks", "Sequential + clocks", "circle", "the same, every microbatch at a planned clock"],
  ["nanobatching", "Nanobatching, full clock", "triangle", "one half of a microbatch communicates while the other computes"],
  ["nanobatching+clocks", "Nanobatching + clocks", "diamond", "the same, every microbatch at a planned clock"],
  ["ergon", "ergon", "disc", "the start of communication, its SMs and every clock are planned together"],
].map(([key, title, mark, what]) => {
  const method = (plan.methods || {})[key] || {};
  return { key, title, mark, what, strong: key === "ergon", color: `var(--${key.replace("+", "-")})`,
    points: list(method.points).filter(p => isNumber(p.time_s) && isNumber(p.energy_j)), versus: method.versus || {},
    present: key in (plan.methods || {}) };
}).filter(method => method.present);
const methodOf = key => METHODS.find(method => method.key === key);

/* The GPUs of each kind; if there are several, a stage, partition or picture names its own. */
const KINDS_OF_GPUS = list(plan.kinds);
const kindOf = entry => KINDS_OF_GPUS[(entry || {}).kind || 0] || {};
const kindOfStage = stage => kindOf(list(plan.stages)[stage]);
const gpuText = (kind, before = ", ") => (KINDS_OF_GPUS.length > 1 && kind.gpu ? `${before}${kind.gpu}` : "");

/* ---- elements ---- */
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity))
    if (child !== null && child !== undefined) node.append(child);
  return node;
}
const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const caption = text => h("caption", { class: "unseen" }, text);
const swatch = (color, number, kind) => h("i", { class: kind ? `swatch ${kind}` : "swatch", style: `background:${color}` }, number);
/* A number that stands out at the top, and what it is. */
const tile = (value, text) => h("div", { class: "tile" }, h("b", {}, value), h("span", {}, text));
const s = (tag, attributes, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

/* ---- numbers ---- */
function digits(value, significant = 3) {
  if (!isNumber(value)) return NONE;
  if (value === 0) return "0";
  const places = Math.max(0, significant - 1 - Math.floor(Math.log10(Math.abs(value))));
  return value.toFixed(Math.min(places, 9));
}
const unitOf = (value, units) => units.find(([, size]) => Math.abs(value) >= size) || units[units.length - 1];
const TIME_UNITS = [["s", 1], ["ms", 1e-3], ["µs", 1e-6]];
const ENERGY_UNITS = [["MJ", 1e6], ["kJ", 1e3], ["J", 1], ["mJ", 1e-3]];
function quantity(value, units, significant) {
  if (!isNumber(value)) return NONE;
  const [unit, size] = unitOf(value, units);
  return `${digits(value / size, significant)}\u00a0${unit}`;
}
const time = (value, significant = 3) => quantity(value, TIME_UNITS, significant);
const energy = (value, significant = 3) => quantity(value, ENERGY_UNITS, significant);
const percent = value => (isNumber(value) ? `${(Math.round(value * 10) / 10 + 0).toFixed(1).replace("-", "−")}\u00a0%` : NONE);
const reduction = (value, reference) => 100 * (1 - value / reference);
const plural = (count, word, words = `${word}s`) => `${count} ${count === 1 ? word : words}`;

/* "12.9 % less energy", "3.0 % more time", "the same time" */
function lessOrMore(value, what) {
  if (Math.abs(value) < 0.05) return `the same ${what}`;
  return `${percent(Math.abs(value))} ${value > 0 ? "less" : "more"} ${what}`;
}

/* ---- scales ---- */
function ticks(low, high, count) {
  const raw = (high - low) / Math.max(1, count);
  if (!(raw > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map(m => m * power).find(value => value >= raw * 0.999);
  const values = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) values.push(k * step);
  return values.length > 1 ? values : ticks(low, high, 2 * count);
}
function tickTexts(values) {
  const step = values.length > 1 ? values[1] - values[0] : 1;
  let places = 0;
  while (places < 6 && Math.abs(step * 10 ** places - Math.round(step * 10 ** places)) > 1e-6) places++;
  return values.map(value => (value + 0).toFixed(places));
}
const linear = (low, high, from, to) => value => from + (value - low) / (high - low || 1) * (to - from);

/* Cold to hot, readable without telling red from green. */
const HEAT = [[54, 102, 176], [132, 178, 216], [222, 224, 214], [240, 178, 98], [200, 76, 36]];
function heat(share) {
  const x = Math.min(1, Math.max(0, share)) * (HEAT.length - 1), i = Math.min(HEAT.length - 2, Math.floor(x));
  return HEAT[i].map((low, k) => Math.round(low + (HEAT[i + 1][k] - low) * (x - i)));
}
/* The colour of the job with this number; neighbours differ. */
const jobColor = number => `hsl(${(number * 137.5) % 360} 55% ${44 + (number * 29) % 22}%)`;
const rgb = color => `rgb(${color.join(",")})`;
const inkOn = ([r, g, b]) => (0.299 * r + 0.587 * g + 0.114 * b > 125 ? "#14202c" : "#ffffff");

/* Shows what the reader may do next: texts, and commands as code. */
function sayNext(...parts) {
  byId("next").hidden = false;
  byId("next").replaceChildren(h("b", {}, "Next:"), ...parts);
}
const code = text => h("code", {}, text);

/* ---- the tip ---- */
let byKey = false; /* the reader uses keys: announce the selected item, too */
addEventListener("keydown", () => { byKey = true; }, true);
addEventListener("pointermove", () => { byKey = false; }, true);
const say = text => { byId("said").textContent = text; };
function showTip(text, x, y) {
  const tip = byId("tip");
  tip.textContent = text;
  if (byKey) say(text);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = x + 14 + box.width > innerWidth ? x - box.width - 14 : x + 14;
  tip.style.left = `${Math.max(6, left)}px`;
  tip.style.top = `${Math.max(6, Math.min(y + 14, innerHeight - box.height - 6))}px`;
}
const hideTip = () => { byId("tip").hidden = true; };

/* Draws now and whenever the element's width changes. */
function drawToWidth(place, draw) {
  let width = 0;
  const redraw = () => {
    const now = Math.floor(place.clientWidth);
    if (now > 0 && now !== width) draw(width = now);
  };
  redraw();
  new ResizeObserver(redraw).observe(place);
}

/* A mark of a method, centred at (x, y). */
function mark(method, x, y, r) {
  const style = { fill: method.strong ? method.color : "var(--card)", stroke: method.color, "stroke-width": 2 };
  if (method.mark === "square") return s("rect", { x: x - r, y: y - r, width: 2 * r, height: 2 * r, ...style });
  if (method.mark === "circle" || method.mark === "disc") return s("circle", { cx: x, cy: y, r, ...style });
  const path = method.mark === "triangle"
    ? `M${x},${y - 1.25 * r}L${x + 1.2 * r},${y + r}L${x - 1.2 * r},${y + r}Z`
    : `M${x},${y - 1.3 * r}L${x + 1.3 * r},${y}L${x},${y + 1.3 * r}L${x - 1.3 * r},${y}Z`;
  return s("path", { d: path, ...style });
}
const markIcon = method => s("svg", { width: 16, height: 16, "aria-hidden": "true" }, mark(method, 8, 8, 5));
