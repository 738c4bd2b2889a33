/* The page of a live cluster: jobs and their GPUs, waiting jobs and why they wait, power, and decisions. It polls
 * status.json; the page itself contains the first status. */
const PERIOD_MS = 2000, OLD_S = 30, HOUR_S = 3600, MOST_ROWS = 50, MOST_TROUBLES = 12, MOST_MOMENTS = 1500;
const OVER = ["ended", "cancelled", "gone"], MOVING = ["starting", "stopping", "ending"];
const POWER_UNITS = [["MW", 1e6], ["kW", 1e3], ["W", 1]];
const numbers = new Intl.NumberFormat("en");
const grouped = value => numbers.format(Math.round(value));

/* The latest status, its time of arrival on this machine's clock, and its age at that time. */
const live = { status: null, jobs: new Map(), cameMs: 0, ageS: 0, failedMs: null, why: "" };
const nowS = () => live.status.at_unix_s + live.ageS + (Date.now() - live.cameMs) / 1000;

/* ---- times as text ---- */
const LENGTHS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
function length(seconds) {
  if (!isNumber(seconds)) return NONE;
  const whole = Math.max(0, Math.round(seconds)), i = Math.max(0, LENGTHS.findIndex(([, size]) => whole >= size));
  const at = whole ? i : LENGTHS.length - 1, [unit, size] = LENGTHS[at], next = LENGTHS[at + 1];
  const rest = next ? Math.floor((whole % size) / next[1]) : 0;
  return `${Math.floor(whole / size)}\u00a0${unit}${rest ? ` ${rest}\u00a0${next[0]}` : ""}`;
}
const days = new Intl.DateTimeFormat("en", { day: "numeric", month: "short" });
const two = value => String(value).padStart(2, "0");
function clock(unixS, withSeconds) {
  if (!isNumber(unixS)) return NONE;
  const date = new Date(1000 * unixS), today = new Date(1000 * nowS());
  const day = date.toDateString() === today.toDateString() ? "" : `${days.format(date)} `;
  return `${day}${two(date.getHours())}:${two(date.getMinutes())}${withSeconds ? `:${two(date.getSeconds())}` : ""}`;
}
/* A future moment: { text, small }. */
function coming(unixS) {
  if (!isNumber(unixS)) return { text: NONE };
  const left = unixS - nowS();
  return left < 1 ? { text: "now" } : { text: `in ${length(left)}`, small: clock(unixS) };
}

/* ---- jobs ---- */
const jobName = job => `${job.id} ${job.name || ""}`.trim();
const hasGpus = job => job.gpus > 0 || job.gpus_intended > 0;
const isOver = job => OVER.includes(job.phase) && !hasGpus(job);
const shareDone = job => (isNumber(job.iteration) && job.iterations > 0 ? Math.min(1, job.iteration / job.iterations) : null);
const percentDone = job => (shareDone(job) === null ? NONE : `${Math.floor(100 * shareDone(job))}\u00a0%`);

/* "h[001-004], h007" from sorted names. */
function nodesText(names) {
  const runs = [];
  for (const name of names) {
    const [, head, digits] = /^([^]*?)(\d{0,9})$/.exec(name), last = runs[runs.length - 1];
    if (last && digits && last.head === head && last.to.length === digits.length && Number(last.to) + 1 === Number(digits)) last.to = digits;
    else runs.push({ head, from: digits, to: digits });
  }
  return runs.map(run => (run.from === run.to ? run.head + run.from : `${run.head}[${run.from}-${run.to}]`)).join(", ") || NONE;
}

/* ---- a table that keeps the rows of unchanged keys, so that a selection in them is not lost ---- */
/* A cell is { text, small?, share?, color? }. */
function fillCell(cell, { text, small, share, color }) {
  const parts = [color ? h("i", { class: "swatch", style: `background:${color}` }) : null, text,
    isNumber(share) ? h("span", { class: "meter", role: "img", "aria-label": `${Math.floor(100 * share)} % done` }, h("i", { style: `width:${(100 * share).toFixed(1)}%` })) : null,
    small ? h("small", {}, small) : null];
  cell.replaceChildren(...parts.filter(Boolean));
}

/* `title` is the caption, `name` is of its rows, "jobs"; `make` gives { key, cells } of an item. Returns what shows a list of items. */
function keyedTable(place, title, heads, name, make) {
  const body = h("tbody", {}), table = h("table", {}, caption(title), h("thead", {}, h("tr", {}, heads.map(text => h("th", { scope: "col" }, text)))), body);
  const rows = new Map(), more = h("button", { type: "button", class: "more", onclick: () => { all = !all; show(items); } });
  let items = [], all = false, order = null;
  function rowOf({ key, cells }) {
    const row = rows.get(key) || { line: h("tr", {}, cells.map((cell, i) => h(i ? "td" : "th", i ? { "data-label": heads[i] } : { scope: "row" }))), was: [] };
    rows.set(key, row);
    cells.forEach((cell, i) => {
      const now = JSON.stringify(cell);
      if (row.was[i] !== now) fillCell(row.line.children[i], cell);
      row.was[i] = now;
    });
    return row.line;
  }
  function show(newItems) {
    items = newItems;
    const shown = (all ? items : items.slice(0, MOST_ROWS)).map(make), keys = new Set(shown.map(item => item.key)), lines = shown.map(rowOf);
    for (const key of rows.keys()) if (!keys.has(key)) rows.delete(key);
    const newOrder = JSON.stringify([...keys]);
    if (newOrder !== order) body.replaceChildren(...lines);
    order = newOrder;
    more.hidden = items.length <= MOST_ROWS;
    more.textContent = all ? `Show the first ${MOST_ROWS} ${name}` : `Show all ${grouped(items.length)} ${name}`;
    table.hidden = !items.length;
  }
  place.replaceChildren(table, more);
  show(items);
  return show;
}

/* ---- heading ---- */
const use = { managed: 0, foreign: 0, free: 0, unavailable: 0 };
function useOf(node, id, jobs) {
  if (isNumber(id)) return jobs.has(id) ? "managed" : "foreign";
  return node.state === "up" ? "free" : "unavailable";
}

function heading(status, jobs) {
  const gpus = list(status.nodes).flatMap(node => list(node.gpus).map(id => useOf(node, id, jobs)));
  for (const key of Object.keys(use)) use[key] = gpus.filter(one => one === key).length;
  const running = [...jobs.values()].filter(hasGpus).length, waiting = [...jobs.values()].filter(job => !hasGpus(job)).length;
  const power = status.power || {}, run = count => (count === 1 ? "runs" : "run"), wait = count => (count === 1 ? "waits" : "wait");
  byId("headline").textContent = running
    ? `${plural(running, "job")} ${run(running)} on ${grouped(use.managed)} of ${grouped(gpus.length)} GPUs; ${waiting ? `${grouped(waiting)} ${wait(waiting)}` : "none waits"}.`
    : `No job runs on the ${grouped(gpus.length)} GPUs; ${waiting ? `${grouped(waiting)} ${wait(waiting)}` : "none waits"}.`;
  /* Announced only when it has changed, so that a calm cluster stays silent. */
  if (live.said !== byId("headline").textContent) say(live.said = byId("headline").textContent);
  document.title = `ergon schedule: ${running} ${run(running)}, ${waiting} ${wait(waiting)}`;
  byId("tiles").replaceChildren(...[
    tile(`${grouped(use.managed)} of ${grouped(gpus.length)}`, "GPUs with managed jobs"),
    tile(grouped(use.free), `free${use.foreign ? `; ${use.foreign} with other jobs` : ""}${use.unavailable ? `; ${use.unavailable} on nodes that are not up` : ""}`),
    tile(grouped(waiting), waiting === 1 ? "job waits" : "jobs wait"),
    isNumber(power.now_w) ? tile(quantity(power.now_w, POWER_UNITS), isNumber(power.cap_w)
      ? `of a cap of ${quantity(power.cap_w, POWER_UNITS)}: ${percent(100 * power.now_w / power.cap_w)}` : "drawn by all nodes; no cap") : null,
  ].filter(Boolean));
}

function troubles(status, jobs) {
  const items = [
    ...list(status.nodes).filter(node => ["down", "draining", "unknown"].includes(node.state))
      .map(node => `Node ${node.name} is ${node.state === "unknown" ? "in an unknown state" : node.state}${node.reason ? `: ${node.reason}` : "."}`),
    ...[...jobs.values()].filter(job => job.needs_attention).map(job => `Job ${jobName(job)} of ${job.user || NONE}: ${job.reason || "it needs attention."}`)];
  byId("trouble-section").hidden = !items.length;
  if (items.length)
    sayNext(`look at the list under “Problems” (${items.length}); `, code("ergon jobs"), " lists the jobs in a terminal.");
  else
    sayNext("there are no problems. ", code("ergon submit job.yaml"), " gives a job to the cluster, ", code("ergon jobs"), " lists them in a terminal.");
  byId("trouble").replaceChildren(...items.slice(0, MOST_TROUBLES).map(text => h("li", {}, text)),
    ...(items.length > MOST_TROUBLES ? [h("li", {}, `and ${items.length - MOST_TROUBLES} more`)] : []));
}

/* ---- GPUs by node ---- */
const map = { made: null, squares: [], texts: new Map(), at: 0, lit: null };
const USES = [["managed", "a managed job, in its colour of the table below"], ["managed moving", "starts or stops"], ["foreign", "a job that ergon does not manage"], ["free", "free"], ["unavailable", "node not up"]];

/* Marks all GPUs of a job; null: none. */
function light(id) {
  if (map.lit === id) return;
  map.lit = id;
  for (const square of map.squares) square.setAttribute("class", square.look + (id !== null && square.job === id ? " lit" : ""));
}

function squareText(square) {
  const node = live.status.nodes[square.place], id = node.gpus[square.gpu], kind = useOf(node, id, live.jobs), job = live.jobs.get(id);
  return `${node.name}, GPU ${square.gpu}, ${node.type}\n` + (job
    ? `job ${jobName(job)} of ${job.user || NONE}\n${job.phase}, ${plural(job.gpus, "GPU")}, ${shareDone(job) === null ? "progress unknown" : `${percentDone(job)} done`}`
    : kind === "foreign" ? `job ${id}, which is not managed by ergon` : kind === "free" ? "free" : "unassigned") +
    (node.state === "up" ? "" : `\nnode: ${node.state}${node.reason ? `, ${node.reason}` : ""}`);
}

function showSquare(index, x, y) {
  const square = map.squares[map.at = Math.min(map.squares.length - 1, Math.max(0, index))], box = square.getBoundingClientRect();
  light(isNumber(square.job) ? square.job : null);
  showTip(squareText(square), x === undefined ? box.left + box.width : x, y === undefined ? box.top + box.height : y);
  return square;
}
let pointed = null;
function markSquare(square) {
  if (pointed) pointed.removeAttribute("id");
  if (square) square.setAttribute("id", "gpu-at");
  pointed = square;
}
function leaveMap() {
  light(null);
  markSquare(null);
  hideTip();
}
function keyOnMap(event) {
  const here = map.squares[map.at], node = here ? here.node : 0;
  const firstOf = wanted => map.squares.findIndex(square => square.node === wanted);
  const last = map.squares.length ? map.squares[map.squares.length - 1].node : 0;
  const target = { ArrowLeft: map.at - 1, ArrowRight: map.at + 1, Home: 0, End: map.squares.length - 1,
    ArrowUp: firstOf(Math.max(0, node - 1)), ArrowDown: firstOf(Math.min(last, node + 1)) }[event.key];
  if (event.key === "Escape") leaveMap();
  if (target === undefined || !here) return;
  markSquare(showSquare(pointed ? target : map.at));
  event.preventDefault();
}

/* The elements, which stay as long as their nodes. */
function makeMap(nodes) {
  map.squares = [];
  map.texts = new Map();
  const types = [...new Set(nodes.map(node => node.type))];
  const group = type => {
    const text = h("span", {});
    map.texts.set(type, text);
    return h("div", {}, h("h3", {}, type, text), h("div", { class: "nodes" }, nodes.map((node, n) => node.type !== type ? null
      : h("div", { class: "node" }, h("span", {}, node.name), h("span", { class: "squares" }, list(node.gpus).map((id, g) => {
        const square = h("i", {});
        Object.assign(square, { node: n, gpu: g, look: "", index: -1 });
        map.squares.push(square);
        return square;
      }))))));
  };
  const groups = types.map(group);
  /* Sorted by type in the picture, so also for the arrow keys. */
  map.squares.forEach((square, i) => { square.index = i; });
  const order = [...new Set(map.squares.map(square => square.node))];
  map.squares.forEach(square => { square.place = square.node; square.node = order.indexOf(square.place); });
  map.at = 0;
  pointed = null;
  byId("map").replaceChildren(...groups);
}

function showMap(status, jobs) {
  const nodes = list(status.nodes), made = JSON.stringify(nodes.map(node => [node.name, node.type, list(node.gpus).length]));
  if (made !== map.made) makeMap(nodes);
  map.made = made;
  const busy = new Map();
  for (const square of map.squares) {
    const node = nodes[square.place], id = node.gpus[square.gpu], kind = useOf(node, id, jobs), job = jobs.get(id);
    const look = kind === "managed" && MOVING.includes(job.phase) ? "managed moving" : kind;
    const count = busy.get(node.type) || [0, 0];
    busy.set(node.type, [count[0] + isNumber(id), count[1] + 1]);
    if (look === square.look && square.job === id) continue;
    square.setAttribute("style", kind === "managed" ? `--job:${jobColor(id)}` : "");
    Object.assign(square, { look, job: id });
    square.setAttribute("class", look + (id !== null && map.lit === id ? " lit" : ""));
  }
  for (const [type, [used, all]] of busy) map.texts.get(type).textContent = ` ${used} of ${plural(all, "GPU")} in use`;
  byId("map").setAttribute("aria-label", `GPUs by node: ${use.managed} with managed jobs, ${use.foreign} with other jobs, ${use.free} free, ` +
    `${use.unavailable} on nodes that are not up. Arrow keys move between GPUs and nodes.`);
}

/* ---- tables of jobs ---- */
const jobCell = (job, color) => ({ text: jobName(job), color, small: [job.user, job.account].filter(Boolean).join(", ") || null });

function runningRow(job) {
  const moves = isNumber(job.gpus_intended) && job.gpus_intended !== job.gpus, share = shareDone(job);
  return { key: `${job.token}`, cells: [
    jobCell(job, job.gpus > 0 ? jobColor(job.id) : null),
    { text: moves ? `${job.gpus} → ${job.gpus_intended}` : String(job.gpus), small: job.phase === "running" ? null : job.phase },
    { text: nodesText(list(job.nodes)) },
    { text: isNumber(job.point) ? String(job.point) : NONE },
    { text: percentDone(job), share, small: share === null ? null : `${grouped(job.iteration)} of ${grouped(job.iterations)}` },
    isNumber(job.iteration_s) ? { text: time(job.iteration_s) } : { text: NONE },
    coming(job.ends_unix_s),
    { text: isNumber(job.starts) ? String(Math.max(0, job.starts - 1)) : NONE },
  ] };
}
function waitingRow(job) {
  const phase = job.needs_attention ? "needs attention" : job.phase === "waiting" ? null : job.phase;
  return { key: `${job.token}`, cells: [
    jobCell(job, null),
    { text: isNumber(job.gpus_asked) ? String(job.gpus_asked) : NONE },
    { text: isNumber(job.submitted_unix_s) ? length(nowS() - job.submitted_unix_s) : NONE },
    coming(job.starts_unix_s),
    { text: job.reason || NONE, small: phase },
  ] };
}

const showRunning = keyedTable(byId("running"), "Jobs with GPUs", ["job", "GPUs", "nodes", "point of its plan", "done", "time of an iteration", "should end", "restarts"], "jobs", runningRow);
const showWaiting = keyedTable(byId("waiting"), "Jobs that wait", ["job", "GPUs", "has waited", "should start", "why it waits"], "jobs", waitingRow);

function tables(status, jobs) {
  const all = [...jobs.values()], running = all.filter(hasGpus), waiting = all.filter(job => !hasGpus(job));
  byId("running-text").textContent = running.length ? "Speed and progress are from the trainers' latest reports." : "No managed job has GPUs.";
  byId("waiting-text").textContent = waiting.length
    ? "A start is expected if running jobs end as they should and none grows; jobs are in the order in which they came." : "No job waits.";
  showRunning(running);
  showWaiting(waiting);
  const over = OVER.map(phase => [phase, list(status.jobs).filter(job => job.phase === phase && isOver(job)).length]).filter(([, count]) => count);
  byId("over-text").textContent = over.length ? `Over: ${over.map(([phase, count]) => `${count} ${phase}`).join(", ")}.` : "";
}

/* ---- over time ---- */
const moments = [];
function remember(status, jobs) {
  const power = status.power || {};
  moments.push({ ms: live.cameMs, power: power.now_w, cap: power.cap_w, busy: use.managed,
    waiting: [...jobs.values()].filter(job => !hasGpus(job)).length });
  if (moments.length > MOST_MOMENTS) /* the older half at half the detail */
    moments.splice(0, moments.length, ...moments.filter((moment, i) => i % 2 === 0 || i > moments.length / 2));
}

/* `lines` are [{ key, color, text, dashed? }]. Returns what draws it anew. */
function momentChart(title, note, units, lines) {
  const place = h("div", {}), card = h("div", {}, h("h3", {}, title), h("p", {}, note), place);
  let width = 0, held = false;
  function draw() {
    const known = moments.flatMap(moment => lines.map(line => moment[line.key])).filter(isNumber);
    card.hidden = !known.length;
    if (!width || !known.length) return;
    const most = Math.max(...known), [unit, size] = unitOf(most, units);
    const height = 200, margin = { left: 50, right: 14, top: 26, bottom: 42 }, first = moments[0].ms;
    const longest = Math.max(60, (moments[moments.length - 1].ms - first) / 1000), [timeUnit, timeSize] = LENGTHS.find(([, size]) => longest >= 2 * size);
    const { frame, atX, atY } = axes(width, height, margin, { low: 0, high: longest / timeSize, title: `time since the page was opened (${timeUnit})` },
      { low: 0, high: 1.08 * (most || 1) / size, title: unit });
    const places = moments.map(moment => atX((moment.ms - first) / 1000 / timeSize));
    const path = line => {
      let pen = "M", drawn = "";
      moments.forEach((moment, i) => {
        const value = moment[line.key];
        if (isNumber(value)) drawn += pen === "M" ? `M${places[i].toFixed(1)},${atY(value / size).toFixed(1)}` : `H${places[i].toFixed(1)}V${atY(value / size).toFixed(1)}`;
        pen = isNumber(value) ? "H" : "M";
      });
      return drawn;
    };
    const svg = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: "application",
      "aria-label": `${title} since this page was opened, now ${lines.map(line => line.text(moments[moments.length - 1][line.key])).join(", ")}. Arrow keys move along it.` },
    frame, lines.map(line => s("path", { d: path(line), fill: "none", stroke: line.color, "stroke-width": line.dashed ? 1.6 : 2.2, "stroke-dasharray": line.dashed ? "6 4" : null })),
    lines.filter(line => isNumber(moments[moments.length - 1][line.key])).map(line => s("circle", { cx: places[places.length - 1], r: 3.5,
      cy: atY(moments[moments.length - 1][line.key] / size), fill: line.color })));
    addCursor(svg, { top: margin.top, bottom: height - margin.bottom, places, at: places.length - 1,
      textAt: i => [`${length((Date.now() - moments[i].ms) / 1000)} ago`, ...lines.filter(line => isNumber(moments[i][line.key])).map(line => line.text(moments[i][line.key]))].join("\n") });
    /* It stays while a person reads values off it. */
    for (const name of ["pointerenter", "focus"]) svg.addEventListener(name, () => { held = true; });
    for (const name of ["pointerleave", "blur"]) svg.addEventListener(name, () => { held = false; });
    place.replaceChildren(svg);
  }
  byId("course").append(card);
  drawToWidth(place, now => { width = now; draw(); });
  return () => {
    if (!width) width = Math.floor(place.clientWidth);
    if (!held) draw();
  };
}
const watts = value => quantity(value, POWER_UNITS);
const charts = [
  momentChart("Power", "Of all nodes, with their jobs at the points of their plans; dashed: the cap.", POWER_UNITS, [
    { key: "cap", color: "var(--memory-rounding)", dashed: true, text: value => (isNumber(value) ? `cap ${watts(value)}` : "no cap") },
    { key: "power", color: "var(--ergon)", text: value => `power ${watts(value)}` }]),
  momentChart("GPUs with managed jobs", "Jobs that start or stop count, too.", [["GPUs", 1]], [{ key: "busy", color: "var(--sequential-clocks)", text: value => plural(value, "GPU") }]),
  momentChart("Jobs that wait", "All managed jobs that have not ended and do not have GPUs.", [["jobs", 1]], [{ key: "waiting", color: "var(--nanobatching)", text: value => plural(value, "job") }]),
];

/* ---- decisions ---- */
let showNotes = null, noteColumns = null;
function notes(status) {
  const recent = list(status.notes).filter(note => isNumber(note.at_unix_s) && note.at_unix_s > status.at_unix_s - HOUR_S).reverse();
  const extra = [["why", "why"], ["gain", "expected gain"], ["cost", "cost"]].filter(([key]) => recent.some(note => note[key]));
  const columns = JSON.stringify(extra);
  if (columns !== noteColumns)
    showNotes = keyedTable(byId("notes"), "Decisions and actions of the last hour", ["time", "what", ...extra.map(([, title]) => title)], "lines", ({ note, key }) => (
      { key, cells: [{ text: clock(note.at_unix_s, true) }, { text: note.text || NONE }, ...extra.map(([part]) => ({ text: note[part] || NONE }))] }));
  noteColumns = columns;
  byId("notes-text").textContent = recent.length ? "" : "Nothing was decided or done.";
  const seen = new Map();
  showNotes(recent.map(note => {
    const same = `${note.at_unix_s} ${note.text}`, count = seen.get(same) || 0;
    seen.set(same, count + 1);
    return { note, key: `${count} ${same}` };
  }));
}

/* ---- the state ---- */
function showState() {
  const state = byId("state"), main = byId("state").parentNode;
  const age = live.status ? nowS() - live.status.at_unix_s : null;
  const text = live.failedMs !== null && live.status ? `The controller has not answered for ${length((Date.now() - live.failedMs) / 1000)}. The page shows the state of ${clock(live.status.at_unix_s, true)}.`
    : live.failedMs !== null ? live.why
    : age > OLD_S ? `The controller looked at the cluster last ${length(age)} ago. The page shows that state.`
    : live.status && live.status.answers === false ? "The resource manager does not answer. The page shows the last known state; running jobs continue." : "";
  state.hidden = !text;
  if (state.textContent !== text) state.textContent = text;
  if (main) main.setAttribute("class", !live.status ? "empty" : text ? "old" : "");
  if (!live.status) return;
  const speed = live.status.compress;
  byId("subtitle").textContent = `Policy ${live.status.policy || NONE}${isNumber(speed) && speed !== 1 ? `, at ${digits(speed)} times the speed of the clock` : ""}; ` +
    (live.failedMs === null ? `updated ${length(age)} ago.` : `updated last at ${clock(live.status.at_unix_s, true)}.`);
}

/* Shows a status with its age in seconds at its arrival. */
function take(status, ageS) {
  const fresh = !live.status || status.at_unix_s !== live.status.at_unix_s;
  /* Found by id, which another job may have had before. */
  const jobs = new Map(list(status.jobs).filter(job => !isOver(job)).map(job => [job.id, job]));
  Object.assign(live, { status, jobs, cameMs: Date.now(), ageS, failedMs: null });
  heading(status, jobs);
  if (fresh) remember(status, jobs);
  troubles(status, jobs);
  showMap(status, jobs);
  tables(status, jobs);
  charts.forEach(draw => draw());
  notes(status);
  showState();
}

function fail(why) {
  if (live.failedMs === null) {
    live.failedMs = live.status ? live.cameMs : Date.now();
    moments.push({ ms: Date.now() }); /* a gap */
  }
  live.why = why;
  showState();
}

async function ask() {
  try {
    const answer = await fetch("status.json", { cache: "no-store", signal: AbortSignal.timeout(10000) });
    if (answer.ok) take(await answer.json(), Number(answer.headers.get("Age")) || 0);
    else fail(answer.status === 503 ? "The controller has not looked at the cluster yet." : `The controller answers with status ${answer.status}.`);
  } catch (error) {
    fail("The controller does not answer.");
  }
  setTimeout(ask, PERIOD_MS);
}

byId("map-legend").append(...USES.map(([look, text]) => h("span", {}, h("span", { class: "squares" }, h("i", { class: look, style: "--job:var(--ergon)" })), text)));
fill(byId("map"), { tabindex: 0, role: "application", onpointerleave: leaveMap, onblur: leaveMap, onkeydown: keyOnMap,
  onpointermove: event => {
    if (isNumber(event.target.index)) showSquare(event.target.index, event.clientX, event.clientY);
    else leaveMap();
  } }, []);
if (isNumber(plan.at_unix_s)) take(plan, 0);
else {
  byId("headline").textContent = "Nothing is known of the cluster yet.";
  sayNext("wait until ", code("ergon schedule"), " has looked at the cluster for the first time, or read its messages.");
}
showState();
ask();
