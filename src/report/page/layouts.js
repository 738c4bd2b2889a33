/* The page of a job's layouts: the best over clocks, all that fit, and where their time goes. */
const gib = bytes => `${(bytes / GIB).toFixed(1)}\u00a0GiB`;
const layouts = list(plan.layouts), points = plan.points || {}, best = layouts[0];
const pointTimes = list(points.time_s), pointBytes = list(points.peak_bytes), pointJoules = list(points.energy_j);
const degrees = layout => ["t", "c", "p", layout.layers ? "v" : "l", "d", ...(layout.e > 1 ? ["e"] : []), "microbatch"]
  .map(key => `${key === "microbatch" ? "b" : key}\u00a0${layout[key]}`).join(" ");

/* The difference between two rows of the same degrees: the recomputation, and the GPUs of the stages. */
const placesOf = layout => list(layout.places)
  .map(({ gpu, gpus, stages }) => `${gpus}\u00a0${gpu} in ${plural(stages, "stage")}`).join(", ");
const rowDetails = layout => [`recomputes ${layout.recompute}`, layout.offload > 0 && `offload ${digits(layout.offload)}`,
  plan.counts && plural(layout.gpus, "GPU"), placesOf(layout)].filter(Boolean).join(", ");

const words = layout => [["tensor", "t"], ["context", "c"], ["pipeline", "p"], ["data", "d"], ["expert", "e"], ["FSDP", "fsdp"]]
  .filter(([, key]) => layout[key] > 1).map(([word, key]) => `${word}\u00a0${layout[key]}`)
  .concat(layout.v > 1 ? [plural(layout.v, "virtual stage")] : []).join(", ") || "one GPU";

/* Items that stand together, in the order of a step. */
const PARTS = [
  ["Matrix products and attention", ["linear", "attention"]],
  ["Memory-bound kernels", ["memory", "overhead"]],
  ["Tensor, context and expert groups", ["tensor", "context", "expert"]],
  ["Recomputation and offloading", ["recompute", "offload", "stalls"]],
  ["Head", ["head"]],
  ["Pipeline", ["pipeline", "bubble", "uneven"]],
  ["Gradients and optimizer", ["gradients", "optimizer"]],
  ["Gathers and scatters of weights", ["fsdp"]],
].map(([title, items], i) => ({ title, items, color: `hsl(${[212, 190, 160, 45, 20, 330, 270, 90][i]} 55% 52%)` }));
const highest = layout => layout.highest_clock;
const partOf = (part, layout) => part.items.reduce((sum, item) => sum + (highest(layout).time_items_s[item] || 0), 0);

/* Every layout of the union has a colour of its own, the listed ones first. */
const nameOf = layout => ["t", "c", "p", layout.layers ? "v" : "l"].map(key => `${key}=${layout[key]}`)
  .concat(`b=${layout.microbatch}`, layout.e > 1 ? [`e=${layout.e}`] : [], layout.fsdp ? [`fsdp=${layout.fsdp}`] : []).join(",");
const keyOf = (name, gpus, recompute) => `${name} on ${gpus}, recompute ${recompute}`;
const gpusOf = layout => layout.gpus_by_kind || plural(layout.gpus, "GPU");
const keyOfLayout = layout => keyOf(nameOf(layout), gpusOf(layout), layout.recompute);
const union = list(plan.frontier).map(point => ({ ...point, key: keyOf(point.name, gpusOf(point), point.recompute) }));
const keys = [...new Set(layouts.map(keyOfLayout)
  .concat(union.map(point => point.key)))];
const colorOf = key => `hsl(${(212 + 137.5 * keys.indexOf(key)) % 360} 60% 45%)`;

const goal = () => {
  const asked = plan.objective, bounds = [
    asked.deadline_s && `within ${time(asked.deadline_s, 4)}`, asked.energy_budget_j && `within ${energy(asked.energy_budget_j, 4)}`,
    asked.power_budget_w && `within ${digits(asked.power_budget_w / 1000)}\u00a0kW`].filter(Boolean);
  return [asked.goal === "least_energy" ? "the least energy" : "the fastest", ...bounds].join(" ");
};

/* The GPUs of a stage: its kind where there are several. */
const stageKind = (layout, stage) => {
  const place = list(layout.places).find(({ first_stage, stages }) => stage >= first_stage && stage < first_stage + stages);
  return place && list(plan.kinds).find(kind => kind.gpu === place.gpu);
};
const budgetOf = (layout, stage) => (stageKind(layout, stage) || plan).memory_budget_bytes;
const budgetWords = () => plan.kinds
  ? plan.kinds.map(kind => `${gib(kind.memory_budget_bytes)} a ${kind.gpu}`).join(", ") : `${gib(plan.memory_budget_bytes)} a GPU`;

function heading() {
  byId("job-name").textContent = plan.job || "";
  document.title = `ergon layout: ${plan.job || ""}`;
  byId("headline").textContent = `${time(best.time_s)} and ${energy(best.energy_j)} an iteration, with ${words(best)}.`;
  byId("subtitle").textContent =
    `Asked: ${goal()}. ${plan.model} on ${best.gpus_by_kind || `${plural(best.gpus, "GPU")} (${plan.gpu})`}, ${best.batch} sequences of ` +
    `${plan.sequence} tokens; times of the engine ${plan.engine}; ${budgetWords()}. ` +
    `Recomputation ${best.recompute}, offload ratio ${digits(best.offload)}.`;
  byId("confidence").textContent = (plan.kinds || [plan])
    .map(kind => `Energy by the model of ${kind.gpu}: ${kind.confidence}.`).join(" ");
  const tile = (value, text) => h("div", { class: "tile" }, h("b", {}, value), h("span", {}, text));
  byId("tiles").append(
    tile(Math.round(best.tokens_per_s).toLocaleString("en"), "tokens a second"),
    tile(`${(100 * best.mfu).toFixed(1)}\u00a0%`, "of the GPUs' peak (MFU)"),
    tile(energy(best.energy_j), `an iteration, ${Math.round(best.gpu_power_w)} W a GPU`),
    tile(gib(best.peak_bytes), "of the GPU that needs most"),
    tile(plan.planned.fitting.toLocaleString("en"),
      `${plan.kinds ? "layouts looked at one by one" : "layouts fit"}, ${plan.planned.solved} planned over clocks`));
}

const shade = bytes =>
  `hsl(${210 - 190 * Math.min(1, Math.max(0, bytes / plan.memory_budget_bytes))} 65% 50%)`;

/* The union of all frontiers, and behind it those of the listed layouts. */
function frontier() {
  const curves = layouts.map(layout => ({ key: keyOfLayout(layout), points: layout.frontier }));
  const all = union.concat(curves.flatMap(curve => curve.points));
  const [timeUnit, timeSize] = unitOf(Math.max(...all.map(p => p.time_s)), TIME_UNITS);
  const [energyUnit, energySize] = unitOf(Math.max(...all.map(p => p.energy_j)), ENERGY_UNITS);
  const shown = [...new Set(union.map(point => point.key))];
  byId("frontier-legend").append(...shown.map(key => h("span", {},
    h("i", { class: "swatch", style: `background:${colorOf(key)}` }), key)));
  byId("frontier-note").textContent =
    `No layout that was not planned could save more than ${(100 * plan.planned.frontier_gap).toFixed(1)} % of energy at the ` +
    "deadlines that were looked at.";
  drawToWidth(byId("frontier"), width => {
    const height = Math.round(Math.min(480, Math.max(300, width * 0.6)));
    const [xLow, xHigh] = limits(all.map(p => p.time_s / timeSize), 0.04, 0.04);
    const [yLow, yHigh] = limits(all.map(p => p.energy_j / energySize), 0.06, 0.05);
    const { frame, atX, atY } = axes(width, height, { left: 50, right: 14, top: 26, bottom: 42 },
      { low: xLow, high: xHigh, title: `Time per iteration (${timeUnit})` },
      { low: yLow, high: yHigh, title: `Energy per iteration, all GPUs (${energyUnit})` });
    const place = p => [atX(p.time_s / timeSize), atY(p.energy_j / energySize)];
    const path = points => points.map(p => place(p).map(v => v.toFixed(1)).join(",")).join(" ");
    const [bestX, bestY] = place(best);
    byId("frontier").replaceChildren(s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": `Time and energy of ${plural(union.length, "plan")} that no other beats` }, frame,
      curves.map(curve => s("polyline", { points: path(curve.points), fill: "none", stroke: colorOf(curve.key), opacity: 0.35 })),
      union.map(p => {
        const [x, y] = place(p);
        return s("circle", { cx: x.toFixed(1), cy: y.toFixed(1), r: 4.5, fill: colorOf(p.key),
          onpointermove: event => showTip(`${p.name}, ${gpusOf(p)}\nrecompute ${p.recompute}, offload ${digits(p.offload)}\n` +
            `${time(p.time_s, 4)}, ${energy(p.energy_j, 4)}, ${Math.round(p.energy_j / p.time_s / p.gpus)} W a GPU\n` +
            `forward at ${Math.round(p.forward_mhz)} MHz, backward at ${Math.round(p.backward_mhz)} MHz in the mean`,
          event.clientX, event.clientY), onpointerleave: hideTip });
      }),
      s("circle", { cx: bestX, cy: bestY, r: 8, fill: "none", stroke: "var(--ink)", "stroke-width": 2.5, "pointer-events": "none" })));
  });
}

function counts() {
  if (!plan.counts) {
    byId("counts-section").hidden = true;
    return;
  }
  const kinds = list(plan.kinds).map(kind => kind.gpu);
  const heads = ["GPUs", ...kinds, "the fastest layout", "time", "tokens/s", "MFU", "energy", "GPU-hours", ""];
  const usedOf = ({ places }, gpu) => list(places).filter(place => place.gpu === gpu).reduce((sum, place) => sum + place.gpus, 0);
  const isBest = fastest => fastest.gpus === best.gpus && kinds.every(gpu => usedOf(fastest, gpu) === usedOf(best, gpu));
  /* One row for a number of GPUs with which nothing fits on any kinds. */
  const shown = plan.counts.filter(({ gpus, fits }, i) => fits ||
    (plan.counts.every(other => other.gpus !== gpus || !other.fits) && plan.counts.findIndex(other => other.gpus === gpus) === i));
  byId("counts").append(h("table", {},
    h("thead", {}, h("tr", {}, heads.map(text => h("th", { scope: "col" }, text)))),
    h("tbody", {}, shown.map(({ gpus, fits, fastest, on_frontier, missed }) => !fits
      ? h("tr", {}, h("th", { scope: "row" }, gpus), kinds.map(() => h("td", {})), h("td", {}, "nothing fits"),
        heads.slice(2 + kinds.length).map(() => h("td", {})))
      : h("tr", { class: isBest(fastest) ? "ours" : "" }, h("th", { scope: "row" }, gpus),
        kinds.map(gpu => h("td", {}, usedOf(fastest, gpu))), h("td", { class: "one-line" }, degrees(fastest)),
        h("td", {}, time(fastest.time_s)), h("td", {}, Math.round(fastest.tokens_per_s).toLocaleString("en")),
        h("td", {}, `${(100 * fastest.mfu).toFixed(1)}\u00a0%`), h("td", {}, energy(fastest.energy_j)),
        h("td", {}, digits(fastest.gpu_hours)), h("td", {}, [on_frontier && "on the frontier", missed].filter(Boolean).join(", ")))))));
}

/* Seconds up to which layouts are drawn: a few that are far slower would squeeze all others. */
function rightEdge() {
  const sorted = [...pointTimes].sort((a, b) => a - b), low = sorted[0], high = sorted[sorted.length - 1];
  const most = Math.max(low + 1.5 * (sorted[Math.floor(0.97 * (sorted.length - 1))] - low),
    ...layouts.map(layout => highest(layout).time_s));
  return Math.min(high, most);
}

function scatter() {
  if (!pointTimes.length) {
    byId("scatter-section").hidden = true;
    return () => {};
  }
  const ys = pointJoules, edge = rightEdge();
  const drawn = pointTimes.map((t, i) => i).filter(i => pointTimes[i] <= edge), beyond = pointTimes.length - drawn.length;
  const [timeUnit, timeSize] = unitOf(edge, TIME_UNITS);
  const [energyUnit, energySize] = unitOf(Math.max(...drawn.map(i => ys[i])), ENERGY_UNITS);
  byId("scatter-text").textContent =
    "With everything at the highest clock; the colour is the memory of the GPU that needs most.";
  byId("scatter-legend").append(...[0.1, 0.4, 0.7, 1].map(share => h("span", {},
    h("i", { class: "swatch", style: `background:${shade(share * plan.memory_budget_bytes)}` }),
    gib(share * plan.memory_budget_bytes))));
  const feasible = plan.tried.feasible;
  byId("scatter-note").textContent = [
    pointTimes.length < feasible && `${plan.kinds ? "The fastest " : ""}${pointTimes.length.toLocaleString("en")} of ` +
      `${feasible.toLocaleString("en")} were kept for this picture.`,
    beyond && `${beyond.toLocaleString("en")} of ${pointTimes.length.toLocaleString("en")} take longer than is drawn, up to ` +
      `${time(Math.max(...pointTimes))}.`].filter(Boolean).join(" ");
  let ring, placeOf;
  drawToWidth(byId("scatter"), width => {
    const height = Math.round(Math.min(480, Math.max(300, width * 0.6)));
    const low = Math.min(...pointTimes) / timeSize, high = edge / timeSize;
    const [yLow, yHigh] = limits(drawn.map(i => ys[i] / energySize), 0.05, 0.05);
    const { frame, atX, atY } = axes(width, height, { left: 50, right: 14, top: 26, bottom: 42 },
      { low: low - 0.02 * (high - low), high: high + 0.02 * (high - low), title: `Time per iteration (${timeUnit})` },
      { low: yLow, high: yHigh, title: `Energy per iteration (${energyUnit})` });
    const svg = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": `${pointTimes.length} layouts by time and energy` }, frame,
      drawn.map(i => s("circle", { cx: atX(pointTimes[i] / timeSize).toFixed(1), cy: atY(ys[i] / energySize).toFixed(1), r: 2.5,
        fill: shade(pointBytes[i]), opacity: 0.7 })));
    ring = s("circle", { r: 8, fill: "none", stroke: "var(--ink)", "stroke-width": 2.5 });
    svg.append(ring);
    placeOf = layout => [atX(highest(layout).time_s / timeSize), atY(highest(layout).energy_j / energySize)];
    const [x, y] = placeOf(best);
    ring.setAttribute("cx", x); ring.setAttribute("cy", y);
    byId("scatter").replaceChildren(svg);
  });
  return layout => {
    const [x, y] = placeOf(layout);
    ring.setAttribute("cx", x); ring.setAttribute("cy", y);
  };
}

function ranking(show) {
  const heads = ["layout", "batch", "recompute", "offload", "GiB", "time", "tokens/s", "MFU",
    "energy", "J/token", "W a GPU", plan.kinds && "which GPUs"].filter(Boolean);
  byId("top").append(h("table", {},
    h("thead", {}, h("tr", {}, heads.map(text => h("th", { scope: "col" }, text)))),
    h("tbody", {}, layouts.map((layout, i) => h("tr", { class: i ? "" : "ours", onpointerenter: () => show(layout) },
      h("th", { scope: "row" }, degrees(layout)), h("td", {}, layout.batch), h("td", {}, layout.recompute),
      h("td", {}, layout.offload.toFixed(3)), h("td", {}, (layout.peak_bytes / GIB).toFixed(1)), h("td", {}, time(layout.time_s)),
      h("td", {}, Math.round(layout.tokens_per_s).toLocaleString("en")), h("td", {}, `${(100 * layout.mfu).toFixed(1)}\u00a0%`),
      h("td", {}, energy(layout.energy_j)), h("td", {}, digits(layout.energy_j / (layout.tokens_per_s * layout.time_s))),
      h("td", {}, Math.round(layout.gpu_power_w)), plan.kinds ? h("td", { class: "one-line" }, placesOf(layout)) : null)))));
}

function items() {
  const present = PARTS.filter(part => layouts.some(layout => partOf(part, layout) > 0));
  byId("items-legend").append(...present.map(part =>
    h("span", {}, h("i", { class: "swatch", style: `background:${part.color}` }), part.title)));
  const most = Math.max(...layouts.map(layout => highest(layout).time_s));
  byId("items").append(...layouts.map(layout => h("div", { class: "bar-row" },
    h("span", {}, degrees(layout), h("small", {}, `${time(highest(layout).time_s)}, ${rowDetails(layout)}`)),
    h("div", { class: "bar memory-bar", role: "img", "aria-label": `${degrees(layout)}: ${time(highest(layout).time_s)}` },
      present.map(part => h("i", {
        style: `width:${100 * partOf(part, layout) / most}%;background:${part.color}`,
        onpointermove: event => showTip(`${part.title}\n${time(partOf(part, layout))}, ` +
          `${(100 * partOf(part, layout) / highest(layout).time_s).toFixed(1)} %`, event.clientX, event.clientY),
        onpointerleave: hideTip }))))));
}

/* The memory of one GPU of each stage. Returns a function that shows the stages of another layout. */
function bytes() {
  const used = MEMORY_PARTS.filter(part => layouts.some(layout => list(layout.stages).some(stage => bytesOf(part, stage.items) > 0)));
  const most = Math.max(plan.memory_budget_bytes, ...layouts.map(layout => layout.peak_bytes));
  byId("bytes-legend").append(...used.map(part =>
    h("span", {}, h("i", { class: "swatch", style: `background:${part.color}` }), part.title)));
  /* ergon memory takes jobs on GPUs of one kind. */
  byId("bytes-note").hidden = Boolean(plan.kinds);
  const show = layout => {
    byId("bytes-text").textContent =
      `One GPU of each stage of ${degrees(layout)} at its worst moment; the line is the budget.`;
    byId("bytes").replaceChildren(...list(layout.stages).map((stage, i) => h("div", { class: "bar-row" },
      h("span", {}, `stage ${i}`, h("small", {}, `${stageKind(layout, i) ? `${stageKind(layout, i).gpu}, ` : ""}${gib(stage.peak_bytes)}, ${plural(stage.layers, "layer")}, ` +
        `recomputes ${stage.recompute}` + (stage.offload > 0 ? `, ratio ${digits(stage.offload)}` : ""))),
      h("div", { class: "bar memory-bar", role: "img", "aria-label": `stage ${i}: ${gib(stage.peak_bytes)}` },
        used.map(part => h("i", {
          style: `width:${100 * bytesOf(part, stage.items) / most}%;background:${part.color}`,
          onpointermove: event => showTip(`stage ${i}: ${part.title.toLowerCase()}\n${gib(bytesOf(part, stage.items))}`,
            event.clientX, event.clientY),
          onpointerleave: hideTip })),
        h("b", { style: `left:${100 * budgetOf(layout, i) / most}%`, title: `budget ${gib(budgetOf(layout, i))}` })))));
  };
  show(best);
  return show;
}

heading();
frontier();
counts();
const ringAt = scatter(), stagesOf = bytes();
ranking(layout => { ringAt(layout); stagesOf(layout); });
items();
