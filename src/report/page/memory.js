/* The page of a layout's memory: bars of the stages, their course over an iteration, the numbers. */
const gib = bytes => `${(bytes / GIB).toFixed(2)}\u00a0GiB`;

const stages = list(plan.stages), limit = plan.budget_bytes;
const mixed = stages.some(stage => stage.gpu !== stages[0].gpu);
const mostBytes = Math.max(...stages.flatMap(stage => [stage.budget_bytes, stage.peak_bytes]));
const present = MEMORY_PARTS.filter(part => stages.some(stage => bytesOf(part, stage.items) > 0));

function heading() {
  const layout = plan.layout || {}, binding = stages[plan.binding_stage] || {};
  byId("job-name").textContent = plan.job || "";
  document.title = `ergon memory: ${plan.job || ""}`;
  byId("headline").textContent = plan.fits
    ? `The layout fits: the fullest GPU needs ${gib(plan.peak_bytes)} of its budget of ${gib(limit)}.`
    : `The layout does not fit: ${mixed ? `a ${binding.gpu}` : "a GPU"} needs ${gib(plan.peak_bytes)}, ${gib(plan.peak_bytes - limit)} more than it has.`;
  if (plan.fits)
    sayNext("see how long an iteration takes, and whether another layout is faster: ", code("ergon layout job.yaml"), ".");
  else
    sayNext("find what fits: ", code("ergon memory job.yaml --solve-offload gpu"), " moves activations to host memory, ", code("ergon layout job.yaml"), " tries all layouts.");
  byId("subtitle").textContent =
    `${plan.model} on ${plural(plan.gpus, "GPU")} (${plan.gpu}): tensor ${layout.tensor}, context ${layout.context}, ` +
    `pipeline ${layout.pipeline} with ${plural(layout.virtual_stages, "virtual stage")}, data ${layout.data}` +
    `${layout.expert > 1 ? `, experts over ${plural(layout.expert, "rank")}` : ""}` +
    `${layout.fsdp ? `, weights over ${layout.fsdp} ranks (FSDP)` : ""}; ` +
    `${layout.microbatches} microbatches of ${layout.microbatch} × ${layout.sequence} tokens; ` +
    `recomputation: ${plan.recompute}` +
    (plan.offload > 0 ? `; ${percent(100 * plan.offload)} of the activations${stages.some(stage => stage.offload !== plan.offload) ? ", or less," : ""} in host memory.` : ".");
  const host = Math.max(...stages.map(stage => stage.host_bytes));
  byId("tiles").append(
    tile(gib(plan.peak_bytes), `highest need of a GPU: pipeline stage ${plan.binding_stage}, ${momentText(binding.moment, "its")}`),
    tile(gib(limit), `budget${mixed ? " of that GPU" : " of a GPU"}, of ${Math.round(plan.gpu_memory_bytes / GIB)} GiB on the card`),
    tile(gib(Math.abs(limit - plan.peak_bytes)), plan.fits ? "left on that GPU" : "missing on that GPU"),
    ...(host > 0 ? [tile(gib(host), "host memory for each GPU, at most")] : []));
  byId("memory-note").textContent = {
    arena: "Counted are the bytes of the tensors, without what an allocator adds (accounting: arena).",
    framework: "Each tensor counts as the block that a framework's caching allocator gives it (accounting: framework).",
    static: "All buffers are taken when the training begins, and stay (accounting: static).",
  }[plan.accounting];
}

function momentText(moment, whose) {
  return moment === "always" ? "all the time" : moment === "head" ? "in the head" : `in ${whose} ${moment} pass`;
}

function legend() {
  byId("memory-legend").append(...partsLegend(present), h("span", {}, h("i", { class: "budget-mark" }), "budget of the GPU"));
}

function bars() {
  byId("memory-bars").append(...stages.map(stage => h("div", { class: "bar-row" },
    h("span", {}, `stage ${stage.stage}`, h("small", {},
      `${mixed ? `${stage.gpu}: ` : ""}${gib(stage.peak_bytes)}, worst ${momentText(stage.moment, "a")}` +
      (stage.offload > 0 ? `, ${percent(100 * stage.offload)} offloaded` : ""))),
    partsBar(bytesParts(present, stage.items, gib), mostBytes, `Stage ${stage.stage}: ${gib(stage.peak_bytes)} of ${gib(stage.budget_bytes)}`,
      h("b", { style: `left:${100 * stage.budget_bytes / mostBytes}%`, title: `budget ${gib(stage.budget_bytes)}` })))));
}

/* The parts of pass k of a stage. */
function itemsAt(stage, k) {
  return Object.fromEntries(Object.entries(stage.course.bytes).map(([item, column]) => [item, column[k]]));
}

function courseChart(stage, place, most) {
  const course = stage.course, count = list(course.pass).length;
  if (!count) return;
  drawToWidth(place, width => {
    const height = 210, margin = { left: 40, right: 10, top: 24, bottom: 40 };
    const { frame, atX, atY } = axes(width, height, margin,
      { low: 0, high: count, title: "passes of the stage", ticks: ticks(0, count, 5).filter(Number.isInteger) },
      { low: 0, high: most / GIB, title: "memory (GiB)", ticks: ticks(0, most / GIB, 4) });
    const low = new Array(count).fill(0), areas = [];
    for (const part of present) {
      const up = [], down = [];
      for (let k = 0; k < count; k++) {
        const high = low[k] + part.items.reduce((sum, item) => sum + ((course.bytes[item] || [])[k] || 0), 0);
        up.push(`${atX(k).toFixed(1)},${atY(high / GIB).toFixed(1)} ${atX(k + 1).toFixed(1)},${atY(high / GIB).toFixed(1)}`);
        down.unshift(`${atX(k + 1).toFixed(1)},${atY(low[k] / GIB).toFixed(1)} ${atX(k).toFixed(1)},${atY(low[k] / GIB).toFixed(1)}`);
        low[k] = high;
      }
      areas.push(s("polygon", { points: [...up, ...down].join(" "), fill: part.color }));
    }
    const svg = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: "application",
      "aria-label": `Memory of stage ${stage.stage} over ${count} passes, at most ${gib(stage.peak_bytes)}. Arrow keys move.` },
      frame, areas, s("line", { class: "guide", x1: margin.left, x2: width - margin.right, y1: atY(stage.budget_bytes / GIB), y2: atY(stage.budget_bytes / GIB) }));
    addCursor(svg, { top: margin.top, bottom: height - margin.bottom, places: low.map((high, k) => atX(k + 0.5)), at: -1, textAt: k => {
      const items = itemsAt(stage, k);
      return [`pass ${k + 1} of ${count}: ${course.pass[k]} of microbatch ${course.microbatch[k]}, chunk ${course.chunk[k]}`,
        ...present.filter(part => bytesOf(part, items) > 0).map(part => `${part.title}: ${gib(bytesOf(part, items))}`),
        `together: ${gib(low[k])}`].join("\n");
    } });
    place.replaceChildren(svg);
  });
}

function courses() {
  const most = 1.04 * mostBytes;
  for (const stage of stages) {
    const box = h("div", {});
    byId("memory-charts").append(h("div", {}, h("h3", {}, `Stage ${stage.stage}${mixed ? `, ${stage.gpu}` : ""}`),
      h("p", {}, `At most ${gib(stage.peak_bytes)}, with the activations of ${stage.groups === 1 ? "1 forward pass" : `${stage.groups} forward passes`}.`), box));
    courseChart(stage, box, most);
  }
  const all = (plan.layout || {}).microbatches;
  byId("course-note").textContent = plan.simulated_microbatches < all
    ? `The steady state repeats itself: ${plan.simulated_microbatches} of ${all} microbatches are drawn.` : "";
}

function numbers() {
  byId("memory-table").append(h("table", {}, caption("Memory of one GPU of each stage at its worst moment, in GiB"),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "part (GiB)"), stages.map(stage => h("th", { scope: "col" }, `stage ${stage.stage}`)))),
    h("tbody", {},
      mixed ? h("tr", {}, h("th", { scope: "row" }, "GPU"), stages.map(stage => h("td", {}, stage.gpu))) : [],
      present.map(part => h("tr", {}, h("th", { scope: "row" }, part.title),
      stages.map(stage => h("td", {}, (bytesOf(part, stage.items) / GIB).toFixed(2))))),
      h("tr", { class: "ours" }, h("th", { scope: "row" }, "Peak"), stages.map(stage => h("td", {}, (stage.peak_bytes / GIB).toFixed(2)))),
      mixed ? h("tr", {}, h("th", { scope: "row" }, "Budget"), stages.map(stage => h("td", {}, (stage.budget_bytes / GIB).toFixed(2)))) : [])));
}

heading();
legend();
bars();
courses();
numbers();
