/* Time as rows of boxes: the pipeline on canvases (thousands of boxes), partitions as SVG. */

/*
 * The timeline of any point, from its options: the order of a stage's instructions is the same for
 * every plan, so the first timeline provides it.
 */
function timelineOf(method, index) {
  const drawn = list(plan.timelines).find(t => t.method === method.key && t.point === index);
  if (drawn) return drawn;
  const model = list(plan.timelines)[0], uses = list(method.points[index].uses);
  if (!model || !uses.length) return null;
  const rows = model.stages, count = rows.length, nodes = new Map(), name = (type, chunk, stage, microbatch) =>
    `${type} ${chunk} ${stage} ${microbatch}`;
  const stages = rows.map((row, stage) => {
    const taken = {};
    return row.map(span => {
      const entry = list(plan.stages).findIndex(e => e.stage === stage && (e.chunk || 0) === (span.chunk || 0));
      const key = `${span.type} ${entry}`, runs = list((uses[entry] || {})[span.type]);
      const cursor = taken[key] || (taken[key] = { run: 0, used: 0 });
      if (cursor.used === runs[cursor.run + 1]) { cursor.run += 2; cursor.used = 0; }
      cursor.used++;
      const option = ((plan.stages[entry] || {})[span.type] || { options: [] }).options[runs[cursor.run]];
      const node = { ...span, ...option, stage, power_w: option ? option.energy_j / option.time_s : 0 };
      nodes.set(name(span.type, span.chunk || 0, stage, span.microbatch), node);
      return node;
    });
  });
  if (stages.some(row => row.some(node => !isNumber(node.time_s)))) return null;
  const lastChunk = Math.max(...rows.flat().map(span => span.chunk || 0));
  const before = node => {
    const forward = node.type === "forward", chunk = node.chunk || 0;
    const stage = node.stage + (forward ? -1 : 1), wraps = stage < 0 || stage >= count;
    const otherChunk = wraps ? chunk + (forward ? -1 : 1) : chunk;
    if (otherChunk < 0 || otherChunk > lastChunk)
      return forward ? null : nodes.get(name("forward", chunk, node.stage, node.microbatch));
    return nodes.get(name(node.type, otherChunk, (stage + count) % count, node.microbatch));
  };
  /* Up from the one of both virtual stages that the other follows. */
  const hops = list((plan.job || {}).hop_latency_s), place = node => (node.chunk || 0) * count + node.stage;
  const latency = (a, b) => (a.stage === b.stage ? 0 : hops[Math.min(place(a), place(b)) % count] || 0);
  const done = stages.map(() => 0), free = stages.map(() => 0), finished = new Set();
  for (let moved = true; moved;) {
    moved = false;
    stages.forEach((row, stage) => {
      for (; done[stage] < row.length; done[stage]++) {
        const node = row[done[stage]], other = before(node);
        if (other && !finished.has(other)) return;
        const ready = other ? other.end_s + latency(other, node) : 0;
        node.start_s = Math.max(free[stage], ready);
        free[stage] = node.end_s = node.start_s + node.time_s;
        finished.add(node);
        moved = true;
      }
    });
  }
  return { title: "", method: method.key, point: index, time_s: Math.max(...free), stages };
}

const COLOURS = {
  clock: { key: "clock_mhz", text: value => `${Math.round(value)}\u00a0MHz`, word: "clock" },
  power: { key: "power_w", text: value => `${Math.round(value)}\u00a0W`, word: "power of a GPU" },
  energy: { key: "energy_j", text: value => energy(value), word: "energy of a GPU" },
};

/* The page's colours for a canvas; paper is white even if the screen is dark. */
function canvasColours(printing) {
  if (printing) return ["#000000", "#444444", "#dddddd"];
  const style = getComputedStyle(document.documentElement);
  return ["--ink", "--quiet", "--grid"].map(name => style.getPropertyValue(name).trim());
}

/* Draws one timeline; the boxes that are too narrow for a pixel of border lose it, then their text. */
function drawPipeline(canvas, timeline, view, colour, range, printing) {
  const [ink, quiet, grid] = canvasColours(printing);
  const rows = timeline.stages.length, rowHeight = rows > 6 ? 22 : 36, top = 4;
  const width = canvas.parentNode.clientWidth, height = top + rows * rowHeight + 26, dense = devicePixelRatio || 1;
  canvas.width = width * dense; canvas.height = height * dense;
  canvas.style.width = `${width}px`; canvas.style.height = `${height}px`;
  const c = canvas.getContext("2d");
  c.scale(dense, dense);
  c.font = "12px system-ui, sans-serif";
  c.textBaseline = "middle";
  const labels = timeline.stages.map((row, stage) => `stage ${stage}${gpuText(kindOfStage(stage))}`);
  const gutter = Math.max(54, ...labels.map(label => Math.ceil(c.measureText(label).width) + 8));
  const atX = linear(view.from, view.to, gutter, width - 12), bottom = top + rows * rowHeight;
  const values = ticks(view.from, view.to, Math.max(3, (width - gutter) / 90)), texts = tickTexts(values);
  c.textAlign = "center";
  values.forEach((value, i) => {
    c.fillStyle = grid; c.fillRect(atX(value), top, 1, rows * rowHeight + 3);
    c.fillStyle = quiet;
    c.fillText(i === values.length - 1 ? `${texts[i]} s` : texts[i], Math.min(atX(value), width - 16), bottom + 14);
  });
  c.textAlign = "left";
  const boxes = [];
  timeline.stages.forEach((row, stage) => {
    const y = top + stage * rowHeight;
    c.fillStyle = ink; c.fillText(labels[stage], 0, y + rowHeight / 2);
    c.fillStyle = grid; c.fillRect(gutter, y + rowHeight - 2, width - 12 - gutter, 1);
    for (const span of row) {
      if (span.end_s < view.from || span.start_s > view.to) continue;
      const left = Math.max(gutter, atX(span.start_s)), right = Math.min(width - 12, atX(span.end_s));
      const gap = right - left > 4 ? 1 : 0, tall = span.type === "backward" ? 1 : 0.66;
      const boxHeight = (rowHeight - 4) * tall, boxTop = y + rowHeight - 2 - boxHeight;
      const color = heat(range.high > range.low ? (span[colour.key] - range.low) / (range.high - range.low) : 1);
      c.fillStyle = rgb(color);
      c.fillRect(left, boxTop, Math.max(0.6, right - left - gap), boxHeight);
      boxes.push({ left, right, top: y, bottom: y + rowHeight, span, stage });
      const text = `${span.type === "backward" ? "B" : "F"}${span.microbatch}`;
      if (right - left > c.measureText(text).width + 5) {
        c.fillStyle = inkOn(color);
        c.textAlign = "center";
        c.fillText(text, (left + right) / 2, boxTop + boxHeight / 2 + 0.5);
        c.textAlign = "left";
      }
    }
  });
  return boxes;
}

function spanText({ span, stage }) {
  return `stage ${stage}${gpuText(kindOfStage(stage))}, ${span.type} of microbatch ${span.microbatch}${span.chunk ? `, chunk ${span.chunk}` : ""}\n` +
    `${Math.round(span.clock_mhz)} MHz, ${span.mode}\n${time(span.start_s, 4)} to ${time(span.end_s, 4)} (${time(span.end_s - span.start_s)})\n` +
    `${Math.round(span.power_w)} W, ${energy(span.energy_j)} per GPU`;
}

/* "GPUs work 84 % of the time at 1203 MHz on average" */
function summary(timeline) {
  const spans = timeline.stages.flat(), busy = spans.reduce((sum, span) => sum + span.end_s - span.start_s, 0);
  const clock = spans.reduce((sum, span) => sum + span.clock_mhz * (span.end_s - span.start_s), 0) / busy;
  return `${time(timeline.time_s)}, GPUs at work ${percent(100 * busy / timeline.time_s / timeline.stages.length)} of it, ` +
    `at ${Math.round(clock)} MHz on average`;
}

function pipelineCharts(place, controls, note, state) {
  const first = list(plan.timelines)[0];
  if (!first) return null;
  let colour = COLOURS.clock, zoom = 1, position = 0, shown = [], printing = false;
  const scale = h("span", { class: "scale" });
  const choice = h("span", { class: "choice", role: "group", "aria-label": "colour of the boxes" },
    Object.entries(COLOURS).map(([name, one]) => h("button", { type: "button", "aria-pressed": String(one === colour),
      onclick: event => {
        colour = one;
        for (const button of choice.children) button.setAttribute("aria-pressed", String(button === event.target));
        draw();
      } }, name)));
  controls.append(h("span", {}, "Colour by"), choice, scale);
  if (first.stages.some(row => row.length > 60)) {
    const slider = h("input", { type: "range", min: 0, max: 1, step: 0.005, value: 0, disabled: true, "aria-label": "part shown",
      oninput: () => { position = Number(slider.value); draw(); } });
    const button = (text, label, factor) => h("button", { type: "button", "aria-label": label, onclick: () => {
      zoom = Math.min(64, Math.max(1, zoom * factor));
      slider.disabled = zoom === 1;
      draw();
    } }, text);
    controls.append(h("span", { class: "choice" }, button("−", "zoom out", 0.5), button("+", "zoom in", 2)), h("label", {}, "part", slider));
  }

  function draw() {
    const end = Math.max(...shown.map(one => one.timeline.time_s)), span = end / zoom, from = position * (end - span);
    const all = shown.flatMap(one => one.timeline.stages.flat()).map(one => one[colour.key]);
    const range = all.reduce((r, v) => ({ low: Math.min(r.low, v), high: Math.max(r.high, v) }), { low: Infinity, high: -Infinity });
    const same = colour.text(range.low) === colour.text(range.high);
    scale.replaceChildren(colour.text(range.low), ...(same ? [" everywhere"] : [
      h("i", { style: `background:linear-gradient(90deg,${HEAT.map(rgb).join(",")})`, "aria-hidden": "true" }), colour.text(range.high)]));
    for (const one of shown) one.boxes = drawPipeline(one.canvas, one.timeline, { from, to: from + span }, colour, range, printing);
  }

  function show() {
    const method = methodOf(state.kept.method), after = method && timelineOf(method, state.kept.point);
    shown = [{ timeline: first, title: `Before: ${(methodOf(first.method) || { title: "sequential, full clock" }).title}` }];
    if (after && after !== first)
      shown.push({ timeline: after, title: `After: ${method.title}, ${state.own() ? "the selected plan" : "your choice"}` });
    place.replaceChildren(...shown.map(one => {
      one.canvas = h("canvas", { role: "application", tabindex: 0, "aria-label": `${one.title}: ${summary(one.timeline)}. Arrow keys move between passes and stages.` });
      const mark = h("span", { class: "at", hidden: true });
      const at = event => {
        const box = one.canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
        const hit = one.boxes.find(b => x >= b.left && x <= b.right && y >= b.top && y < b.bottom);
        if (hit) showTip(spanText(hit), event.clientX, event.clientY); else hideTip();
      };
      one.canvas.addEventListener("pointermove", at);
      one.canvas.addEventListener("pointerdown", at);
      one.canvas.addEventListener("pointerleave", hideTip);
      const rowsOfBoxes = one.timeline.stages.map(row => row.map(span => ({ span })));
      addKeys(one.canvas, rowsOfBoxes, ({ span }) => {
        const hit = one.boxes.find(b => b.span === span), box = one.canvas.getBoundingClientRect();
        mark.hidden = !hit;
        if (!hit) { say("This pass is outside the visible part."); return; }
        mark.setAttribute("style", `left:${hit.left}px;top:${hit.top}px;width:${hit.right - hit.left}px;height:${hit.bottom - hit.top}px`);
        showTip(spanText(hit), box.left + hit.right, box.top + hit.bottom);
      }, () => { mark.hidden = true; hideTip(); });
      return h("div", { class: "timeline" }, h("h3", {}, one.title, h("span", {}, ` · ${summary(one.timeline)}`)), h("div", { class: "picture" }, one.canvas, mark));
    }));
    draw();
    const point = method && method.points[state.kept.point];
    const overhead = point && after ? point.time_s / after.time_s - 1 : 0;
    note.textContent = overhead > 0.0005
      ? `Drawn as planned. A run takes ${percent(100 * overhead)} longer on this software stack, equally for every method; ` +
        "all numbers above include that."
      : "";
  }
  drawToWidth(place, () => shown.length && draw());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  for (const [event, value] of [["beforeprint", true], ["afterprint", false]])
    addEventListener(event, () => { printing = value; draw(); });
  show();
  return show;
}

/* ---- partitions ---- */

const KINDS = [["gemm", "matrix product"], ["memory", "memory-bound"], ["attention", "attention"], ["communication", "communication"],
  ["join", "waiting for both halves"]];

function partitionCharts(place, legend) {
  const pictures = list(plan.partition_timelines);
  legend.append(...KINDS.map(([kind, text], i) => h("span", {}, swatch(`var(--${kind})`, String(i + 1), "kind"), text)));
  const numberOf = kind => String(KINDS.findIndex(([key]) => key === kind) + 1);
  for (const picture of pictures) {
    const partition = list(plan.partitions).find(p => p.key === picture.key && kindOf(p) === kindOf(picture)) || {};
    const lanes = list(picture.lanes), box = h("div", {});
    const comm = list((lanes[1] || {}).spans).find(span => span.name !== "join");
    const started = comm && list(lanes[0].spans).find(span => span.end_s > comm.start_s + 1e-9);
    const direction = partition.direction || "", clock = Math.round(picture.clock_effective_mhz || picture.clock_mhz);
    const gpu = kindOf(picture);
    place.append(h("div", {}, h("h3", {}, picture.key, direction ? ` (${direction}${gpuText(gpu)})` : gpuText(gpu)),
      h("p", {}, `${partition.communication || "Communication"} starts ${started ? `with ${started.name}` : ""} (slot ${picture.slot}) on ` +
        `${picture.sms}${gpu.sms ? ` of ${gpu.sms}` : ""} SMs, at ` +
        (gpu.mean_clock_mhz ? "the default clock" :
          Math.abs(clock - picture.clock_mhz) > 1 ? `${picture.clock_mhz} MHz, power-capped to ${clock} MHz` : `${picture.clock_mhz} MHz`) +
        `: ${time(picture.time_s)}, ${energy(picture.energy_j)} per GPU.`), box));
    drawToWidth(box, width => {
      const end = Math.max(...lanes.flatMap(lane => list(lane.spans).map(span => span.end_s)), 1e-9);
      const [unit, size] = unitOf(end, TIME_UNITS), laneHeight = 38, top = 4, height = top + lanes.length * laneHeight + 42;
      const { frame, atX } = axes(width, height, { left: 17, right: 17, top, bottom: 42 },
        { low: 0, high: end / size, title: `time (${unit})` }, { low: 0, high: 1, title: "", ticks: [] });
      const svg = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "application", tabindex: 0, "aria-label": lanes.map(lane => `${lane.name}: ` +
        list(lane.spans).map(span => `${span.name} from ${time(span.start_s)} to ${time(span.end_s)}`).join(", ")).join("; ") + ". Arrow keys move between the kernels." }, frame);
      const marks = lanes.map(() => []);
      lanes.forEach((lane, row) => list(lane.spans).forEach(span => {
        const x = atX(span.start_s / size), w = Math.max(1, atX(span.end_s / size) - x - 1), y = top + row * laneHeight;
        const op = list(partition.ops).find(one => one.name === span.name);
        const kind = span.name === "join" ? "join" : row === 1 ? "communication" : (op || {}).kind || "gemm";
        const tip = `${span.name}\n${time(span.start_s)} to ${time(span.end_s)} (${time(span.end_s - span.start_s)})`;
        const text = row === 1 && span.name !== "join" ? `${span.name}, ${picture.sms} SMs` : span.name;
        const rect = s("rect", { x, y, width: w, height: laneHeight - 6, rx: 3, fill: `var(--${kind})`, stroke: "var(--quiet)",
          onpointermove: event => showTip(tip, event.clientX, event.clientY), onpointerleave: hideTip });
        svg.append(rect);
        marks[row].push({ x: x + w / 2, y: y + laneHeight / 2, text: tip });
        const named = `${numberOf(kind)} ${text}`;
        const fits = [named, `${numberOf(kind)} ${span.name}`, numberOf(kind)].find(t => t.length * 6.6 + 4 < w);
        if (fits)
          svg.append(s("text", { x: x + w / 2, y: y + laneHeight / 2 + 1, "text-anchor": "middle", "pointer-events": "none",
            style: "fill:var(--box-ink)" }, fits));
      }));
      if (comm) {
        const x = atX(comm.start_s / size);
        svg.append(s("line", { class: "axis", x1: x, x2: x, y1: top, y2: top + lanes.length * laneHeight - 6, "stroke-width": 2 }));
      }
      const ring = addRing(svg);
      addKeys(svg, marks, ring.show, ring.leave);
      box.replaceChildren(svg);
    });
  }
  return pictures.length > 0;
}
