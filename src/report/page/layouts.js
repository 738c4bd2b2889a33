/* The page of a job's layouts: the best over clocks, all that fit, and the parts of their time. */
const gib = bytes => `${(bytes / GIB).toFixed(1)}\u00a0GiB`;
const layouts = list(plan.layouts), points = plan.points || {}, best = layouts[0];
const pointTimes = list(points.time_s), pointBytes = list(points.peak_bytes), pointJoules = list(points.energy_j);
const degrees = layout => ["t", "c", "p", layout.layers ? "v" : "l", "d", ...(layout.e > 1 ? ["e"] : []), "microbatch"]
  .map(key => `${key === "microbatch" ? "b" : key}\u00a0${layout[key]}`).join(" ");

/* The difference between two rows of the same degrees: the recomputation, and the GPUs of the stages. */
const placesOf = layout => list(layout.places)
  .map(({ gpu, gpus, stages }) => `${gpus}\u00a0${gpu} in ${plural(stages, "stage")}`).join(", ");
const rowDetails = layout => [`recomputes ${layout.recompute}`, layout.offload > 0 && `${percent(100 * layout.offload)} offloaded`,
  plan.counts && plural(layout.gpus, "GPU"), placesOf(layout)].filter(Boolean).join(", ");

const words = layout => [["tensor", "t"], ["context", "c"], ["pipeline", "p"], ["data", "d"], ["expert", "e"], ["FSDP", "fsdp"]]
  .filter(([, key]) => layout[key] > 1).map(([word, key]) => `${word}\u00a0${layout[key]}`)
  .concat(layout.v > 1 ? [plural(layout.v, "virtual stage")] : []).join(", ") || "one GPU";

/* Groups of items, in the order of a step. */
const PARTS = [
  ["Matrix products and attention", ["linear", "attention"]],
  ["Memory-bound kernels", ["memory", "overhead"]],
  ["Tensor, context and expert groups", ["tensor", "context", "expert"]],
  ["Recomputation and offloading", ["recompute", "offload", "stalls"]],
  ["Head", ["head"]],
  ["Pipeline", ["pipeline", "bubble", "uneven"]],
  ["Gradients and optimizer", ["gradients", "optimizer"]],
  ["Gathers and scatters of weights", ["fsdp"]],
].map(([title, items], i) => ({ title, items, number: i + 1, color: `var(--part-${i})` }));
const highest = layout => layout.highest_clock;
const partOf = (part, layout) => part.items.reduce((sum, item) => sum + (highest(layout).time_items_s[item] || 0), 0);

/* Every layout of the union has its own colour, the listed ones first. */
const nameOf = layout => ["t", "c", "p", layout.layers ? "v" : "l"].map(key => `${key}=${layout[key]}`)
  .concat(`b=${layout.microbatch}`, layout.e > 1 ? [`e=${layout.e}`] : [], layout.fsdp ? [`fsdp=${layout.fsdp}`] : []).join(",");
const keyOf = (name, gpus, recompute) => `${name} on ${gpus}, recompute ${recompute}`;
const gpusOf = layout => layout.gpus_by_kind || plural(layout.gpus, "GPU");
const keyOfLayout = layout => keyOf(nameOf(layout), gpusOf(layout), layout.recompute);
const union = list(plan.frontier).map(point => ({ ...point, key: keyOf(point.name, gpusOf(point), point.recompute) }))
  .sort((a, b) => a.time_s - b.time_s);
const keys = [...new Set(layouts.map(keyOfLayout)
  .concat(union.map(point => point.key)))];
const SHAPES = [["circle", true], ["square", false], ["triangle", true], ["diamond", false], ["square", true], ["circle", false], ["diamond", true], ["triangle", false]];
const styleOf = key => {
  const i = keys.indexOf(key), [shape, strong] = SHAPES[i % SHAPES.length];
  return { mark: shape, strong, color: `hsl(${(212 + 137.5 * i) % 360} 60% var(--tone))` };
};
/* "t=2,c=1,p=1,l=32,b=1" in words, without degrees of 1. */
const WORDS = { t: "tensor", c: "context", p: "pipeline", v: "virtual stages", e: "expert", fsdp: "FSDP", b: "microbatch" };
const inWords = name => name.split(",").map(part => part.split("=")).filter(([key, value]) => WORDS[key] && (value !== "1" || key === "b"))
  .map(([key, value]) => `${WORDS[key]}\u00a0${value}`).join(", ");

const goal = () => {
  const asked = plan.objective, bounds = [
    asked.deadline_s && `within ${time(asked.deadline_s, 4)}`, asked.energy_budget_j && `within ${energy(asked.energy_budget_j, 4)}`,
    asked.power_budget_w && `within ${digits(asked.power_budget_w / 1000)}\u00a0kW`].filter(Boolean);
  return [asked.goal === "least_energy" ? "the least energy" : "the fastest", ...bounds].join(" ");
};

/* The kind of GPU of a stage, if there are several. */
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
  const fitting = plan.planned.fitting, which = plan.objective.goal === "least_energy" ? "The layout with the least energy" : "The fastest layout";
  byId("headline").textContent = `${which} takes ${time(best.time_s)} and ${energy(best.energy_j)} for an iteration: ${words(best)}.`;
  sayNext(code("ergon layout job.yaml --output DIR"), " writes a job with this layout, for ", code("ergon optimize"), ", which searches the schedules of its kernels, and for ",
    code("ergon train"), ".");
  byId("subtitle").textContent =
    `Goal: ${goal()}. ${plan.model} on ${best.gpus_by_kind || `${plural(best.gpus, "GPU")} (${plan.gpu})`}, ${best.batch} sequences of ` +
    `${plan.sequence} tokens; times of the engine ${plan.engine}; ${budgetWords()}. ` +
    `Recomputation: ${best.recompute}${best.offload > 0 ? `; ${percent(100 * best.offload)} of the activations in host memory` : ""}.`;
  byId("confidence").textContent = (plan.kinds || [plan])
    .map(kind => `Energy by the model of ${kind.gpu}: ${kind.confidence}.`).join(" ");
  byId("tiles").append(
    tile(Math.round(best.tokens_per_s).toLocaleString("en"), "tokens per second"),
    tile(`${(100 * best.mfu).toFixed(1)}\u00a0%`, "of the GPUs' peak FLOPs (MFU)"),
    tile(`${Math.round(best.gpu_power_w)}\u00a0W`, "mean power of a GPU"),
    tile(gib(best.peak_bytes), "memory of the fullest GPU"),
    tile(fitting.toLocaleString("en"),
      `${plan.kinds ? "layouts examined" : "layouts fit"}, ${plan.planned.solved} planned over clocks`));
}

/* More memory is a larger dot, nearer to red. */
const fullness = bytes => Math.min(1, Math.max(0, bytes / plan.memory_budget_bytes));
const shade = bytes => `color-mix(in oklab, var(--memory-rounding) ${Math.round(100 * fullness(bytes))}%, var(--memory-weights))`;
const dotSize = bytes => 1.8 + 2.4 * fullness(bytes);

/* The union of all frontiers, with those of the listed layouts behind it. */
function frontier() {
  const curves = layouts.map(layout => ({ key: keyOfLayout(layout), points: layout.frontier }));
  const all = union.concat(curves.flatMap(curve => curve.points));
  const [timeUnit, timeSize] = unitOf(Math.max(...all.map(p => p.time_s)), TIME_UNITS);
  const [energyUnit, energySize] = unitOf(Math.max(...all.map(p => p.energy_j)), ENERGY_UNITS);
  const shown = [...new Set(union.map(point => point.key))];
  const titles = new Map(union.map(point => [point.key, `${inWords(point.name)} on ${gpusOf(point)}, recomputation: ${point.recompute}`]));
  byId("frontier-legend").append(...shown.map(key => h("span", {}, markIcon(styleOf(key)), titles.get(key))), h("span", {}, ringIcon(), "the answer"));
  byId("frontier-note").textContent =
    `${plan.planned.solved} of the layouts that fit were planned over clocks. Any other layout could save at most ` +
    `${(100 * plan.planned.frontier_gap).toFixed(1)} % of the energy at the same time.`;
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
    const svg = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "application", tabindex: 0,
      "aria-label": `Time and energy of ${plural(union.length, "plan")} that no other beats. Arrow keys move between them.` }, frame,
    curves.map(curve => s("polyline", { class: "faint", points: path(curve.points), fill: "none", stroke: styleOf(curve.key).color, opacity: 0.5 })),
    union.map(p => s("g", { class: "plan" }, mark(styleOf(p.key), ...place(p), 4))),
    s("circle", { cx: bestX, cy: bestY, r: 9, fill: "none", stroke: "var(--ink)", "stroke-width": 2.5, "pointer-events": "none" }));
    addPlaces(svg, [union.map(p => {
      const [x, y] = place(p);
      return { x, y, text: `${inWords(p.name)} on ${gpusOf(p)}\nrecomputation: ${p.recompute}, ${percent(100 * p.offload)} offloaded\n` +
        `${time(p.time_s, 4)}, ${energy(p.energy_j, 4)}, ${Math.round(p.energy_j / p.time_s / p.gpus)} W per GPU\n` +
        `mean clocks: forward ${Math.round(p.forward_mhz)} MHz, backward ${Math.round(p.backward_mhz)} MHz` };
    })]);
    byId("frontier").replaceChildren(svg);
  });
}

function counts() {
  if (!plan.counts) {
    byId("counts-section").hidden = true;
    return;
  }
  const kinds = list(plan.kinds).map(kind => kind.gpu);
  const heads = ["GPUs", ...kinds, "the fastest layout", "time", "tokens/s", "MFU", "energy", "GPU-hours", "notes"];
  const usedOf = ({ places }, gpu) => list(places).filter(place => place.gpu === gpu).reduce((sum, place) => sum + place.gpus, 0);
  const isBest = fastest => fastest.gpus === best.gpus && kinds.every(gpu => usedOf(fastest, gpu) === usedOf(best, gpu));
  /* One row for a number of GPUs on which nothing fits. */
  const shown = plan.counts.filter(({ gpus, fits }, i) => fits ||
    (plan.counts.every(other => other.gpus !== gpus || !other.fits) && plan.counts.findIndex(other => other.gpus === gpus) === i));
  byId("counts").append(h("table", {}, caption("The fastest layout on each number of GPUs"),
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

/* The limit in seconds of the drawn layouts: a few much slower ones would squeeze all others. */
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
    `Each dot is a layout with everything at the highest clock; the larger and the redder, the more memory its fullest GPU needs. ` +
    "The ring marks the layout chosen in the table below.";
  byId("scatter-legend").append(...[0.1, 0.4, 0.7, 1].map(share => share * plan.memory_budget_bytes).map(bytes => h("span", {},
    s("svg", { width: 14, height: 14, "aria-hidden": "true" }, s("circle", { cx: 7, cy: 7, r: dotSize(bytes), fill: shade(bytes) })), gib(bytes))));
  const feasible = plan.tried.feasible;
  byId("scatter-note").textContent = [
    pointTimes.length < feasible && `${plan.kinds ? "The fastest " : ""}${pointTimes.length.toLocaleString("en")} of ` +
      `${feasible.toLocaleString("en")} are in this picture.`,
    beyond && `${beyond.toLocaleString("en")} of ${pointTimes.length.toLocaleString("en")} take longer than is drawn, up to ` +
      `${time(Math.max(...pointTimes))}.`].filter(Boolean).join(" ");
  let ring, placeOf;
  drawToWidth(byId("scatter"), width => {
    const height = Math.round(Math.min(480, Math.max(300, width * 0.6)));
    const low = Math.min(...pointTimes) / timeSize, high = edge / timeSize;
    const [yLow, yHigh] = limits(drawn.map(i => ys[i] / energySize), 0.05, 0.05);
    const { frame, atX, atY } = axes(width, height, { left: 50, right: 14, top: 26, bottom: 42 },
      { low: low - 0.02 * (high - low), high: high + 0.02 * (high - low), title: `Time per iteration (${timeUnit})` },
      { low: yLow, high: yHigh, title: `Energy per iteration, all GPUs (${energyUnit})` });
    const svg = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "application", tabindex: 0,
      "aria-label": `${pointTimes.length} layouts by time and energy. Arrow keys move between them, from the fastest on.` }, frame,
      drawn.map(i => s("circle", { class: "dot", cx: atX(pointTimes[i] / timeSize).toFixed(1), cy: atY(ys[i] / energySize).toFixed(1), r: dotSize(pointBytes[i]).toFixed(1),
        fill: shade(pointBytes[i]) })));
    ring = s("circle", { class: "chosen", r: 8, fill: "none", stroke: "var(--ink)", "stroke-width": 2.5, "pointer-events": "none" });
    svg.append(ring);
    const byTime = [...drawn].sort((a, b) => pointTimes[a] - pointTimes[b]);
    addPlaces(svg, [byTime.map(i => ({ x: atX(pointTimes[i] / timeSize), y: atY(ys[i] / energySize),
      text: `${time(pointTimes[i], 4)}, ${energy(ys[i], 4)}, ${gib(pointBytes[i])} on the fullest GPU` }))]);
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
  const heads = ["layout", "batch", "recompute", "offloaded", "memory", "time", "tokens/s", "MFU",
    "energy", "J/token", "W per GPU", plan.kinds && "which GPUs"].filter(Boolean);
  const buttons = layouts.map((layout, i) => h("button", { type: "button", class: "row", "aria-pressed": String(i === 0), onclick: () => choose(i) }, degrees(layout)));
  function choose(i) {
    buttons.forEach((button, k) => button.setAttribute("aria-pressed", String(k === i)));
    show(layouts[i]);
    say(`The charts show ${words(layouts[i])}.`);
  }
  byId("top").append(h("table", {}, caption("The best layouts, in the order of the goal"),
    h("thead", {}, h("tr", {}, heads.map(text => h("th", { scope: "col" }, text)))),
    h("tbody", {}, layouts.map((layout, i) => h("tr", { class: i ? "" : "ours" },
      h("th", { scope: "row" }, buttons[i]), h("td", {}, layout.batch), h("td", {}, layout.recompute),
      h("td", {}, percent(100 * layout.offload)), h("td", {}, gib(layout.peak_bytes)), h("td", {}, time(layout.time_s)),
      h("td", {}, Math.round(layout.tokens_per_s).toLocaleString("en")), h("td", {}, `${(100 * layout.mfu).toFixed(1)}\u00a0%`),
      h("td", {}, energy(layout.energy_j)), h("td", {}, digits(layout.energy_j / (layout.tokens_per_s * layout.time_s))),
      h("td", {}, Math.round(layout.gpu_power_w)), plan.kinds ? h("td", { class: "one-line" }, placesOf(layout)) : null)))));
}

function items() {
  const present = PARTS.filter(part => layouts.some(layout => partOf(part, layout) > 0));
  byId("items-legend").append(...partsLegend(present));
  const most = Math.max(...layouts.map(layout => highest(layout).time_s));
  byId("items").append(...layouts.map(layout => h("div", { class: "bar-row" },
    h("span", {}, degrees(layout), h("small", {}, `${time(highest(layout).time_s)}, ${rowDetails(layout)}`)),
    partsBar(present.map(part => ({ ...part, value: partOf(part, layout),
      text: `${time(partOf(part, layout))}, ${percent(100 * partOf(part, layout) / highest(layout).time_s)}` })), most,
    `${words(layout)}: ${time(highest(layout).time_s)}`))));
}

/* The memory of one GPU of each stage. Returns a function that shows the stages of another layout. */
function bytes() {
  const used = MEMORY_PARTS.filter(part => layouts.some(layout => list(layout.stages).some(stage => bytesOf(part, stage.items) > 0)));
  const most = Math.max(plan.memory_budget_bytes, ...layouts.map(layout => layout.peak_bytes));
  byId("bytes-legend").append(...partsLegend(used), h("span", {}, h("i", { class: "budget-mark" }), "budget of the GPU"));
  /* ergon memory takes jobs on GPUs of one kind. */
  byId("bytes-note").hidden = Boolean(plan.kinds);
  const show = layout => {
    byId("bytes-text").textContent =
      `One GPU of each pipeline stage at its memory peak, with ${words(layout)}.`;
    byId("bytes").replaceChildren(...list(layout.stages).map((stage, i) => h("div", { class: "bar-row" },
      h("span", {}, `stage ${i}`, h("small", {}, `${stageKind(layout, i) ? `${stageKind(layout, i).gpu}, ` : ""}${gib(stage.peak_bytes)}, ${plural(stage.layers, "layer")}, ` +
        `recomputes ${stage.recompute}` + (stage.offload > 0 ? `, ${percent(100 * stage.offload)} offloaded` : ""))),
      partsBar(bytesParts(used, stage.items, gib), most, `Stage ${i}: ${gib(stage.peak_bytes)} of ${gib(budgetOf(layout, i))}`,
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
