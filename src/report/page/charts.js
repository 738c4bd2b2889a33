/* Charts without a time axis of boxes: frontiers, energy bars, search progress. */

/* A title that fits: if needed, without the text between its comma and its unit. */
const fitted = (title, room) => (title.length * 6.6 <= room ? title : title.replace(/,[^(]*(?= \()/, ""));

/* The frame of a chart with both axes; x and y are {low, high, title, texts?}. */
function axes(width, height, margin, x, y) {
  const right = width - margin.right, bottom = height - margin.bottom;
  const atX = linear(x.low, x.high, margin.left, right), atY = linear(y.low, y.high, bottom, margin.top);
  const xs = x.ticks || ticks(x.low, x.high, Math.max(3, Math.floor((right - margin.left) / 80)));
  const ys = y.ticks || ticks(y.low, y.high, Math.max(2, Math.floor((bottom - margin.top) / 55)));
  const xTexts = tickTexts(xs), yTexts = tickTexts(ys);
  const frame = s("g", { "aria-hidden": "true" },
    ys.map((value, i) => [
      s("line", { class: "grid", x1: margin.left, x2: right, y1: atY(value), y2: atY(value) }),
      s("text", { class: "quiet", x: margin.left - 7, y: atY(value) + 4, "text-anchor": "end" }, yTexts[i]),
    ]),
    xs.map((value, i) => [
      s("line", { class: "axis", x1: atX(value), x2: atX(value), y1: bottom, y2: bottom + 5 }),
      s("text", { class: "quiet", x: Math.min(atX(value), width - 4 * xTexts[i].length), y: bottom + 19, "text-anchor": "middle" }, xTexts[i]),
    ]),
    s("line", { class: "axis", x1: margin.left, x2: right, y1: bottom, y2: bottom }),
    s("text", { x: (margin.left + right) / 2, y: height - 4, "text-anchor": "middle" }, fitted(x.title, right - margin.left)),
    s("text", { x: 2, y: 13 }, fitted(y.title, width - 4)));
  return { frame, atX, atY };
}

function limits(values, below, above) {
  const low = Math.min(...values), high = Math.max(...values), span = high - low || high || 1;
  return [low - below * span, high + above * span];
}

/* Arrow keys on an element: left and right go along one of `rows` of items, up and down to the next row, Home and End to
 * the ends; `show(item)` and `leave()` do the rest. The keys begin at item `at` of `row`, and continue from where the
 * result, a function of a row and an item, puts them. */
function addKeys(element, rows, show, leave, row = 0, at = -1) {
  element.addEventListener("keydown", event => {
    if (event.key === "Escape") leave();
    const along = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    const across = rows.length > 1 ? { ArrowUp: -1, ArrowDown: 1 }[event.key] : 0;
    if (!rows.length || (!along && !across)) return;
    if (across) row = Math.min(rows.length - 1, Math.max(0, row + across));
    at = Math.min(rows[row].length - 1, Math.max(0, at + (along || 0)));
    if (rows[row].length) show(rows[row][at]);
    event.preventDefault();
  });
  element.addEventListener("blur", leave);
  return (newRow, newAt) => { row = newRow; at = newAt; };
}

/* A ring on a chart that marks one place {x, y, text}, whose text is shown at the pointer (px, py) or next to it. */
function addRing(svg) {
  const ring = s("circle", { r: 8, fill: "none", stroke: "var(--focus)", "stroke-width": 2.5, visibility: "hidden", "pointer-events": "none" });
  svg.append(ring);
  return {
    show(place, px, py) {
      for (const [name, value] of [["cx", place.x], ["cy", place.y], ["visibility", "visible"]]) ring.setAttribute(name, value);
      const box = svg.getBoundingClientRect();
      showTip(place.text, px === undefined ? box.left + place.x : px, py === undefined ? box.top + place.y : py);
    },
    leave() { ring.setAttribute("visibility", "hidden"); hideTip(); },
  };
}

/* Rows of places on a chart, each {x, y, text}, that a pointer not further than `reach` and keys reach: a ring marks the one
 * whose text is shown. The keys begin at place `at` of `row`. shown(place), null for none, and kept(place), after a click
 * or Enter, are told. */
function addPlaces(svg, rows, { reach = 30, row = 0, at = -1, shown = () => {}, kept = () => {} } = {}) {
  const ring = addRing(svg), places = rows.flat();
  let current = null;
  const tell = place => { current = place; shown(place); };
  const show = (place, px, py) => { ring.show(place, px, py); tell(place); };
  const leave = () => { ring.leave(); tell(null); };
  const go = addKeys(svg, rows, show, leave, row, at);
  const nearest = event => {
    const box = svg.getBoundingClientRect(), away = p => Math.hypot(p.x - event.clientX + box.left, p.y - event.clientY + box.top);
    const best = places.reduce((a, b) => (away(b) < away(a) ? b : a));
    return away(best) < reach ? best : null;
  };
  svg.addEventListener("pointermove", event => {
    const place = nearest(event), own = rows.findIndex(one => one.includes(place));
    if (!place) { leave(); return; }
    go(own, rows[own].indexOf(place));
    show(place, event.clientX, event.clientY);
  });
  svg.addEventListener("pointerleave", leave);
  svg.addEventListener("click", event => { const place = nearest(event); if (place) kept(place); });
  svg.addEventListener("keydown", event => { if (event.key === "Enter" && current) kept(current); });
}

/* A bar of parts, each {title, number, value, text, color}: its length is that of `most` values at full width. A part has its
 * number of the legend where it is wide enough; pointer and arrow keys show each. `more` stands in the bar, too. */
function partsBar(parts, most, name, ...more) {
  const shown = parts.filter(part => part.value > 0), boxes = shown.map(part => h("i", {
    style: `width:${100 * part.value / most}%;background:${part.color}`,
    onpointermove: event => showTip(`${part.title}\n${part.text}`, event.clientX, event.clientY), onpointerleave: hideTip,
  }, part.value / most > 0.04 ? String(part.number) : null));
  const bar = h("div", { class: "bar parts memory-bar", role: "application", tabindex: 0,
    "aria-label": `${name}. ${shown.map(part => `${part.title}: ${part.text}`).join(", ")}. Arrow keys move between the parts.` }, boxes, more);
  addKeys(bar, [shown.map((part, i) => ({ part, box: boxes[i] }))], ({ part, box }) => {
    const place = box.getBoundingClientRect();
    showTip(`${part.title}\n${part.text}`, place.left, place.top + 20);
  }, hideTip);
  return bar;
}
const partsLegend = parts => parts.map(part => h("span", {}, swatch(part.color, String(part.number)), part.title));

/* A line from `top` to `bottom` of a chart that goes through its `places`, x from left to right, with the pointer and
 * the arrow keys, and shows textAt(index) next to it. The keys begin at place `at`. The result puts the line at a place, or
 * hides it for null; `mark`, if given, is called instead, with the same. */
function addCursor(svg, { top, bottom, places, at, textAt, mark }) {
  const cursor = s("line", { class: "guide", y1: top, y2: bottom, visibility: "hidden" });
  const put = index => {
    cursor.setAttribute("visibility", index === null ? "hidden" : "visible");
    if (index !== null) for (const name of ["x1", "x2"]) cursor.setAttribute(name, places[index]);
  };
  const move = mark || put, leave = () => { move(null); hideTip(); };
  const show = (index, px, py) => {
    move(index);
    const box = svg.getBoundingClientRect();
    showTip(textAt(index), px === undefined ? box.left + places[index] : px, py === undefined ? box.top + 30 : py);
  };
  svg.append(cursor);
  const go = addKeys(svg, [places.map((place, i) => i)], show, leave, 0, at);
  svg.addEventListener("pointermove", event => {
    const px = event.clientX - svg.getBoundingClientRect().left, away = i => Math.abs(places[i] - px);
    const best = places.reduce((best, place, i) => (away(i) < away(best) ? i : best), 0);
    go(0, best);
    show(best, event.clientX, event.clientY);
  });
  svg.addEventListener("pointerleave", leave);
  return put;
}

/* The guides that show what "same time" (2) and "same energy" (3) mean: [{from, to, badge, text}]. */
function frontierGuides() {
  const clocks = methodOf("sequential+clocks");
  if (!clocks || !ours || !clocks.points.length) return [];
  const fastest = clocks.points[0], cheapest = clocks.points[clocks.points.length - 1];
  const within = ours.points.filter(p => p.time_s <= fastest.time_s * (1 + 1e-9)).pop();
  const under = ours.points.find(p => p.energy_j <= cheapest.energy_j * (1 + 1e-9));
  const isoTime = ours.versus.iso_time_energy_reduction_percent, isoEnergy = ours.versus.iso_energy_time_reduction_percent;
  return [
    within && isoTime > 0 && { from: fastest, to: { time_s: fastest.time_s, energy_j: within.energy_j }, badge: "2",
      text: `same time, ${percent(isoTime)} less energy` },
    under && isoEnergy > 0 && { from: cheapest, to: { time_s: under.time_s, energy_j: cheapest.energy_j }, badge: "3",
      text: `same energy, ${percent(isoEnergy)} less time` },
  ].filter(Boolean);
}

const badge = (x, y, text) => [
  s("circle", { cx: x, cy: y, r: 9, fill: "var(--card)", stroke: "var(--ink)", "stroke-width": 1.2 }),
  s("text", { x, y: y + 4, "text-anchor": "middle", "font-weight": 650 }, text)];
const badgeIcon = text => s("svg", { width: 20, height: 20, "aria-hidden": "true" }, badge(10, 10, text));
const ringIcon = () => s("svg", { width: 20, height: 20, "aria-hidden": "true" },
  s("circle", { cx: 10, cy: 10, r: 8, fill: "none", stroke: "var(--ink)", "stroke-width": 2.5 }));

/* `onPoint(method, index, kept)` gets the point to show; `state.kept` is the point to mark. */
function frontierChart(place, state, onPoint) {
  const points = METHODS.flatMap(method => method.points.map((point, index) => ({ method, point, index })));
  if (!points.length) {
    place.append(h("p", { class: "quiet" }, "The plan has no points."));
    return () => {};
  }
  const [timeUnit, timeSize] = unitOf(Math.max(...points.map(p => p.point.time_s)), TIME_UNITS);
  const [energyUnit, energySize] = unitOf(Math.max(...points.map(p => p.point.energy_j)), ENERGY_UNITS);
  const rows = METHODS.map(method => points.filter(p => p.method === method)).filter(row => row.length);
  let width = 0, focused = false;

  function draw(newWidth = width) {
    width = newWidth;
    const height = Math.round(Math.min(480, Math.max(320, width * 0.66)));
    const [xLow, xHigh] = limits(points.map(p => p.point.time_s / timeSize), 0.05, 0.05);
    const [yLow, yHigh] = limits(points.map(p => p.point.energy_j / energySize), 0.07, 0.05);
    const { frame, atX, atY } = axes(width, height, { left: 50, right: 14, top: 26, bottom: 42 },
      { low: xLow, high: xHigh, title: `Time per iteration (${timeUnit})` },
      { low: yLow, high: yHigh, title: `Energy per iteration, all GPUs of a pipeline (${energyUnit})` });
    for (const p of points)
      Object.assign(p, { x: atX(p.point.time_s / timeSize), y: atY(p.point.energy_j / energySize),
        text: `${p.method.title}\n${time(p.point.time_s)}, ${energy(p.point.energy_j)}` });
    const svg = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: "application",
      "aria-label": "Chart of time against energy of every plan. Arrow keys move between points, Enter keeps one." },
      frame);
    const guides = frontierGuides().map(guide => {
      const [x1, x2] = [guide.from, guide.to].map(p => atX(p.time_s / timeSize));
      const [y1, y2] = [guide.from, guide.to].map(p => atY(p.energy_j / energySize));
      svg.append(s("line", { class: "guide", x1, x2, y1, y2 }));
      return { ...guide, x: x1 + (x2 - x1) * 0.4, y: y1 + (y2 - y1) * 0.6 };
    });
    for (const own of rows) {
      const { method } = own[0];
      svg.append(s("path", { d: own.map((p, i) => `${i ? "L" : "M"}${p.x.toFixed(1)},${p.y.toFixed(1)}`).join(""),
        fill: "none", stroke: method.color, "stroke-width": method.strong ? 2.5 : 1.5 }));
      const r = own.length === 1 ? 6 : method.strong ? 4 : 3.5;
      own.forEach(p => svg.append(mark(method, p.x, p.y, r)));
    }
    const kept = points.find(p => p.method.key === state.kept.method && p.index === state.kept.point);
    guides.forEach(guide => svg.append(...badge(guide.x, guide.y, guide.badge)));
    if (kept)
      svg.append(s("circle", { cx: kept.x, cy: kept.y, r: 10, fill: "none", stroke: "var(--ink)", "stroke-width": 2.5 }));
    const own = kept ? rows.findIndex(row => row.includes(kept)) : 0;
    addPlaces(svg, rows, { reach: 40, row: own, at: kept ? rows[own].indexOf(kept) : 0,
      shown: p => onPoint(p && p.method, p && p.index, false),
      kept: p => { hideTip(); onPoint(p.method, p.index, true); draw(); } });
    svg.addEventListener("focus", () => { focused = true; });
    svg.addEventListener("blur", () => { if (svg.isConnected) focused = false; });
    const again = focused;
    place.replaceChildren(svg, h("div", { class: "legend" },
      kept ? h("span", {}, ringIcon(), state.own() ? "the selected plan" : "your choice") : null,
      guides.map(guide => h("span", {}, badgeIcon(guide.badge), guide.text))));
    if (again) svg.focus({ preventScroll: true });
  }
  drawToWidth(place, draw);
  return () => draw();
}

/* Stacked bars of static and dynamic energy: each method's fastest plan, and the kept point. */
function energyBars(place, state) {
  const rows = METHODS.filter(method => method.points.length).map(method =>
    ({ title: method.title, detail: "fastest", point: method.points[0] }));
  const keptMethod = methodOf(state.kept.method), kept = keptMethod && keptMethod.points[state.kept.point];
  if (kept && state.kept.point > 0)
    rows.push({ title: keptMethod.title, detail: state.own() ? "the selected plan" : "your choice", point: kept });
  const known = rows.filter(row => isNumber(row.point.static_energy_j));
  if (!known.length) {
    place.replaceChildren(h("p", { class: "quiet" }, "The plan does not contain the parts of its energy."));
    return;
  }
  const most = Math.max(...known.map(row => row.point.energy_j)), [unit, size] = unitOf(most, ENERGY_UNITS);
  place.replaceChildren(
    h("div", { class: "legend" },
      h("span", {}, h("i", { class: "swatch static-swatch" }), "static energy"),
      h("span", {}, swatch("var(--dynamic)"), "dynamic energy")),
    ...known.map(({ title, detail, point }) => {
      const dynamic = point.energy_j - point.static_energy_j, share = value => `width:${72 * value / most}%`;
      return h("div", { class: "bar-row" }, h("span", {}, title, h("small", {}, `${detail}, ${time(point.time_s)}`)),
        h("div", { class: "bar", role: "img",
          "aria-label": `${title}, ${detail}: static ${energy(point.static_energy_j)}, dynamic ${energy(dynamic)}` },
          h("i", { class: "static", style: share(point.static_energy_j) }), h("i", { class: "dynamic", style: share(dynamic) }),
          h("span", {}, `${digits(point.static_energy_j / size)} + ${digits(dynamic / size)} = ${digits(point.energy_j / size)}\u00a0${unit}`)));
    }));
}

/* Hypervolume against the number of measurements, one small chart per partition. */
function progressCharts(place) {
  const searched = list(plan.partitions).filter(partition => list(partition.hypervolume).length);
  const most = Math.max(...searched.map(partition => partition.hypervolume.length));
  for (const partition of searched) {
    const values = partition.hypervolume, last = values[values.length - 1], box = h("div", {});
    place.append(h("div", {}, h("h3", {}, partition.key, gpuText(kindOf(partition))),
      h("p", {}, `${partition.measured} of ${partition.configurations} configurations measured` +
        (partition.swept ? `, ${partition.swept} timed` : "")), box));
    drawToWidth(box, width => {
      const height = 150;
      const { frame, atX, atY } = axes(width, height, { left: 36, right: 12, top: 24, bottom: 40 },
        { low: 1, high: Math.max(2, most), title: "measurements", ticks: ticks(0, most, 4).filter(Number.isInteger).map(v => v || 1) },
        { low: 0, high: 100, title: "known share of the frontier (%)", ticks: [0, 50, 100] });
      const line = values.map((value, i) => `${i ? `H${atX(i + 1).toFixed(1)}V` : `M${atX(1)},`}${atY(100 * value).toFixed(1)}`);
      box.replaceChildren(s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
        "aria-label": `${partition.key}${gpuText(kindOf(partition))}: ${percent(100 * last)} of the final frontier after ${values.length} measurements` },
        frame, s("path", { d: line.join(""), fill: "none", stroke: "var(--ergon)", "stroke-width": 2 }),
        s("circle", { cx: atX(values.length), cy: atY(100 * last), r: 3.5, fill: "var(--ergon)" }),
        s("text", { class: "halo", x: atX(values.length), y: atY(100 * last) + 18, "text-anchor": "end" }, percent(100 * last))));
    });
  }
  return searched.length > 0;
}
