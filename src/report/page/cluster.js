/* The page of a shared cluster: the results of each policy for the jobs, and the cluster over time. */
const steps = plan.steps;

function heading() {
  byId("job-name").textContent = plan.trace;
  document.title = `ergon simulate: ${plan.trace}`;
  const ours = policies.find(p => p.strong), isVariant = p => ours && p.name.startsWith(`${ours.name}-`);
  const others = policies.filter(p => p !== ours && !isVariant(p) && isNumber(p.summary.mean_time_in_system_s));
  const best = others.length ? others.reduce((a, b) => (b.summary.mean_time_in_system_s < a.summary.mean_time_in_system_s ? b : a)) : policies[0];
  const one = ours || best, summary = one.summary;
  if (ours && others.length) {
    const less = reduction(summary.mean_time_in_system_s, best.summary.mean_time_in_system_s);
    byId("headline").textContent = `Under ${ours.name} a job waits and runs ${hours(summary.mean_time_in_system_s)} on average: ${lessOrMore(less, "time")} than under ${best.name}, ${less < 0 ? "the best" : "the next best"} policy.`;
  } else {
    byId("headline").textContent = `${one.name}: ${count(summary.finished_jobs)} of ${count(summary.submitted_jobs)} jobs ended, after ${hours(summary.mean_jct_s)} on average.`;
  }
  sayNext("see whether this holds for other loads and seeds: ", code("ergon simulate --sweep sweep.yaml"), "; run the policy on a Slurm cluster: ", code("ergon schedule"), ".");
  byId("subtitle").textContent = `${plural(plan.jobs, "job")} on ${plural(plan.gpus, "GPU")}: ` +
    plan.types.map(type => `${plural(type.nodes, "node")} of ${type.gpus_per_node} ${type.name}`).join(", ") +
    `; ${hours(summary.simulated_s)} simulated.`;
  byId("tiles").append(
    tile(hours(summary.mean_jct_s), `from submission to end, mean of finished jobs (${one.name})`),
    tile(hours(summary.mean_queue_s), `waiting, mean of all jobs (${one.name})`),
    tile(`${(100 * summary.utilization).toFixed(1)}\u00a0%`, `of the GPU time used (${one.name})`),
    tile(quantity(summary.energy_j, BIG_ENERGY), `energy of all GPUs (${one.name})`));
}

function table() {
  const columns = METRICS.filter(([, key]) => policies.some(p => isNumber(p.summary[key])));
  const equal = policies.every(p => p.summary.finished_jobs === policies[0].summary.finished_jobs);
  const bestOf = ([, key, , less]) => {
    const values = policies.map(p => p.summary[key]).filter(isNumber);
    const silent = less === null || policies.length < 2 || (!equal && OF_FINISHED.includes(key));
    return silent ? null : (less ? Math.min : Math.max)(...values);
  };
  const best = columns.map(bestOf);
  byId("policies").append(h("table", {}, caption("Results of each policy"),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "policy"), columns.map(([title]) => h("th", { scope: "col" }, title)))),
    h("tbody", {}, policies.map(policy => h("tr", {},
      h("th", { scope: "row" }, lineIcon(policy), policy.name, h("small", {}, policy.what)),
      columns.map(([title, key, units], i) => {
        const own = policy.summary[key], shown = amount(own, units);
        return h("td", { "data-label": title }, own === best[i] ? h("b", {}, shown) : shown);
      }))))));
  showMeanings(columns);
  const unrunnable = (policies[0].summary || {}).unrunnable_jobs;
  byId("policies-note").textContent = (policies.length > 1 ? "Bold: the best of a column" +
    (equal ? ". " : "; not for completion and energy, since policies finished different numbers of jobs. ") : "") +
    (unrunnable > 0 ? `${plural(unrunnable, "job")} cannot run on any GPUs of this cluster.` : "");
}

function families() {
  const names = [...new Set(policies.flatMap(p => list(p.summary.families).map(family => family.family)))];
  if (names.length < 2) return;
  const rate = value => quantity(value, RATE_UNITS);
  byId("families-section").hidden = false;
  byId("families").append(h("table", {}, caption("Throughput of each family of models under each policy"),
    h("thead", {}, h("tr", {}, ["policy", ...names].map(name => h("th", { scope: "col" }, name)))),
    h("tbody", {}, policies.map(p => h("tr", {}, h("th", { scope: "row" }, lineIcon(p), p.name),
      names.map(name => {
        const own = list(p.summary.families).find(family => family.family === name);
        return h("td", { class: "one-line" }, own ? rate(own.mean_throughput) : NONE,
          own ? h("small", {}, `peak ${rate(own.peak_throughput)}`) : null);
      }))))));
}

/* ---- over time ---- */
const COURSES = [
  ["samples_per_s", "Throughput", [["M samples/s", 1e6], ["k samples/s", 1e3], ["samples/s", 1]]],
  ["waiting", "Jobs waiting", [["jobs", 1]]],
  ["busy_gpus", "GPUs with a job", [["GPUs", 1]]],
  ["off_gpus", "GPUs of nodes that are off", [["GPUs", 1]]],
  ["power_w", "Power of all GPUs", POWER_UNITS],
];

/* One chart of a quantity under every policy; `cursors` has what puts the cursor of each chart, which move together. */
function courseChart(key, title, units, cursors, number) {
  const shown = policies.filter(p => list((p.course || {})[key]).length);
  const most = Math.max(...shown.flatMap(p => p.course[key]).filter(isNumber)), longest = Math.max(...policies.map(p => p.step_s)) * steps;
  if (!(most > 0)) return null;
  const [unit, size] = unitOf(most, units), place = h("div", {});
  drawToWidth(place, width => {
    const height = 210, margin = { left: 46, right: 12, top: 24, bottom: 40 };
    const { frame, atX, atY } = axes(width, height, margin,
      { low: 0, high: longest / HOUR, title: "time (hours)" }, { low: 0, high: 1.05 * most / size, title: unit });
    const lines = shown.map(p => s("path", { ...strokeOf(p), d: p.course[key].map((value, k) => `${k ? "H" : `M${atX(0)},${atY(value / size).toFixed(1)}H`}${atX(Math.min(longest, (k + 1) * p.step_s) / HOUR).toFixed(1)}` +
        (k + 1 < steps ? `V${atY(p.course[key][k + 1] / size).toFixed(1)}` : "")).join("") }));
    const svg = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: "application",
      "aria-label": `${title} over time, at most ${digits(most / size)} ${unit}. Arrow keys move.` }, frame, lines);
    const moments = Array.from({ length: steps + 1 }, (_, k) => k * longest / steps);
    cursors[number] = addCursor(svg, { top: margin.top, bottom: height - margin.bottom, places: moments.map(moment => atX(moment / HOUR)), at: 0,
      mark: index => cursors.forEach(put => put(index)),
      textAt: index => [`after ${hours(moments[index])}`, ...shown.map(p => {
        const value = p.course[key][Math.floor(moments[index] / p.step_s + 1e-6)];
        return `${p.name}: ${isNumber(value) ? `${digits(value / size)} ${unit}` : "done"}`;
      })].join("\n") });
    place.replaceChildren(svg);
  });
  return h("div", {}, h("h3", {}, title), place);
}

function courses() {
  const cursors = [];
  byId("course-legend").append(...policies.map(p => h("span", {}, lineIcon(p), p.name)));
  COURSES.forEach(([key, title, units], i) => {
    const card = courseChart(key, title, units, cursors, i);
    if (card) byId("course").append(card);
  });
}

/* ---- completion times ---- */
function completions() {
  const place = byId("completion"), shown = policies.filter(p => list(p.completion_s).length);
  if (!shown.length) {
    place.append(h("p", { class: "quiet" }, "No job ended."));
    return;
  }
  byId("completion-legend").append(...shown.map(p => h("span", {}, lineIcon(p), p.name)));
  const logs = shown.flatMap(p => p.completion_s).map(v => Math.log10(Math.max(v, 1) / HOUR));
  const low = Math.floor(Math.min(...logs)), high = Math.ceil(Math.max(...logs)), powers = [];
  for (let k = low; k <= high; k++) powers.push(k);
  drawToWidth(place, width => {
    const height = 300, margin = { left: 46, right: 14, top: 26, bottom: 42 };
    const { frame, atX, atY } = axes(width, height, margin,
      { low, high, title: "time from submission to end, logarithmic (hours)", ticks: powers }, { low: 0, high: 100, title: "jobs that took no longer (%)", ticks: [0, 25, 50, 75, 100] });
    frame.querySelectorAll("text").forEach(text => { /* powers of ten as numbers */
      if (text.getAttribute("y") == height - margin.bottom + 19) text.textContent = String(+(10 ** +text.textContent).toPrecision(1));
    });
    const at = seconds => atX(Math.log10(Math.max(seconds, 1) / HOUR));
    const svg = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: "application",
      "aria-label": `${shown.map(p => `${p.name}: half of the finished jobs took no longer than ${hours(p.completion_s[50])}`).join("; ")}. Arrow keys move along the time.` },
    frame, shown.map(p => {
      const share = p.summary.finished_jobs / p.summary.submitted_jobs;
      return s("path", { ...strokeOf(p), d: p.completion_s.map((v, i) => `${i ? "L" : "M"}${at(v).toFixed(1)},${atY(i * share).toFixed(1)}`).join("") });
    }));
    /* Twenty times of each power of ten. */
    const times = Array.from({ length: 20 * (high - low) + 1 }, (_, i) => 10 ** (low + i / 20) * HOUR);
    const doneBy = (p, seconds) => p.completion_s.filter(v => v <= seconds).length / p.completion_s.length * p.summary.finished_jobs / p.summary.submitted_jobs;
    addCursor(svg, { top: margin.top, bottom: height - margin.bottom, places: times.map(at), at: 10 * (high - low),
      textAt: i => [`within ${hours(times[i])}`, ...shown.map(p => `${p.name}: ${percent(100 * doneBy(p, times[i]))} of the jobs`)].join("\n") });
    place.replaceChildren(svg);
  });
}

/* ---- GPUs ---- */
const firstGpus = []; /* by node */
for (const type of plan.types)
  for (let n = 0; n < type.nodes; n++)
    firstGpus[type.first_node + n] = n || type !== plan.types[0] ? firstGpus[type.first_node + n - 1] + gpusOf(type.first_node + n - 1) : 0;
function gpusOf(node) {
  return plan.types.find(type => node >= type.first_node && node < type.first_node + type.nodes).gpus_per_node;
}
const typeOf = node => plan.types.find(type => node >= type.first_node && node < type.first_node + type.nodes).name;

/* Each is {rows, paint(context, x, y): paints, at(row, seconds): text}; x and y give pixels. */
function usesPicture(policy) {
  return {
    rows: plan.gpus,
    paint(context, x, y) {
      for (const [node, bits, from, to, index] of policy.uses) {
        context.fillStyle = jobColor(index);
        for (let g = 0; g < bits.length; g++)
          if (bits[g] === "1")
            context.fillRect(x(from), y(firstGpus[node] + g), Math.max(0.5, x(to) - x(from)), Math.max(0.5, y(1) - y(0) - (y(1) - y(0) > 4 ? 1 : 0)));
      }
    },
    at(row, seconds) {
      const use = policy.uses.find(([node, bits, from, to]) => from <= seconds && seconds < to && bits[row - firstGpus[node]] === "1");
      const node = firstGpus.findIndex((first, i) => row >= first && row < first + gpusOf(i));
      return `${typeOf(node)}, node ${node}, GPU ${row - firstGpus[node]}\n` +
        (use ? `job ${use[5]}, from ${hours(use[2])} to ${hours(use[3])}` : `idle after ${hours(seconds)}`);
    },
  };
}
function sharesPicture(policy) {
  return {
    rows: policy.shares.length,
    paint(context, x, y) {
      policy.shares.forEach((row, r) => row.percent.forEach((percent, k) => {
        if (percent <= 0) return;
        context.fillStyle = rgb(heat(percent / 100));
        context.fillRect(x(k * policy.step_s), y(r), x(policy.step_s) - x(0) + 0.6, y(1) - y(0) + (y(1) - y(0) > 3 ? -0.5 : 0.5));
      }));
    },
    at(row, seconds) {
      const { type, first_node: first, nodes, percent } = policy.shares[row];
      return `${type}, ${nodes > 1 ? `nodes ${first} to ${first + nodes - 1}` : `node ${first}`}\n` +
        `${percent[Math.min(steps - 1, Math.floor(seconds / policy.step_s))]}\u00a0% in use around ${hours(seconds)}`;
    },
  };
}

function gpuPictures() {
  const place = byId("gpus"), controls = byId("gpus-controls");
  let policy = policies.find(p => p.strong) || policies[0];
  byId("gpus-text").textContent = policies.every(p => p.uses)
    ? "Each row is a GPU, each box of one colour a job over time; nodes of a type are together. Point at a box, or move with the arrow keys, to see its job."
    : "Each row is a node, or a few neighbours; the colour is the share of their GPUs in use. Point at a moment, or move with the arrow keys, to see the share.";
  let width = 0;
  function draw() {
    const picture = policy.uses ? usesPicture(policy) : sharesPicture(policy), end = policy.step_s * steps;
    const margin = { left: 0, right: 6, top: 6, bottom: 40 }, rowHeight = Math.min(14, Math.max(2, 480 / picture.rows));
    const height = Math.round(margin.top + margin.bottom + rowHeight * picture.rows), ratio = devicePixelRatio || 1;
    const canvas = h("canvas", { width: width * ratio, height: height * ratio, style: `width:${width}px;height:${height}px`,
      role: "application", tabindex: 0,
      "aria-label": `Use of GPUs over time under ${policy.name}: ${(100 * policy.summary.utilization).toFixed(1)} % of the time of all GPUs. Arrow keys move over time and between rows.` });
    const context = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
    context.scale(ratio, ratio);
    context.font = "12px system-ui, sans-serif";
    const widest = Math.max(...plan.types.map(type => context.measureText(type.name).width));
    margin.left = Math.min(Math.max(54, widest), width / 3) + 10;
    const x = linear(0, end, margin.left, width - margin.right), y = row => margin.top + row * rowHeight;
    context.fillStyle = style.getPropertyValue("--grid");
    context.fillRect(margin.left, margin.top, width - margin.left - margin.right, rowHeight * picture.rows);
    picture.paint(context, x, y);
    context.fillStyle = style.getPropertyValue("--quiet");
    for (const type of plan.types) {
      const first = policy.uses ? firstGpus[type.first_node] : policy.shares.findIndex(row => row.first_node === type.first_node);
      context.fillRect(margin.left - 5, y(first), width - margin.left - margin.right + 5, 1);
      context.fillText(type.name, 2, y(first) + 13, margin.left - 10);
    }
    const marks = ticks(0, end / HOUR, Math.max(3, Math.floor(width / 90))), texts = tickTexts(marks);
    context.textAlign = "center";
    marks.forEach((value, i) => context.fillText(texts[i], x(value * HOUR), height - margin.bottom + 17));
    context.fillText("time (hours)", (margin.left + width) / 2, height - 6);
    canvas.addEventListener("pointermove", event => {
      const box = canvas.getBoundingClientRect(), row = Math.floor((event.clientY - box.top - margin.top) / rowHeight);
      const seconds = (event.clientX - box.left - margin.left) / (width - margin.left - margin.right) * end;
      if (row < 0 || row >= picture.rows || seconds < 0 || seconds > end) hideTip();
      else showTip(picture.at(row, seconds), event.clientX, event.clientY);
    });
    canvas.addEventListener("pointerleave", hideTip);
    const moments = Array.from({ length: 100 }, (_, k) => (k + 0.5) * end / 100), mark = h("span", { class: "at", hidden: true });
    addKeys(canvas, Array.from({ length: picture.rows }, (_, row) => moments.map(seconds => ({ row, seconds }))), ({ row, seconds }) => {
      const box = canvas.getBoundingClientRect();
      mark.hidden = false;
      mark.setAttribute("style", `left:${x(seconds) - 4}px;top:${y(row)}px;width:8px;height:${Math.max(4, rowHeight)}px`);
      showTip(picture.at(row, seconds), box.left + x(seconds), box.top + y(row));
    }, () => { mark.hidden = true; hideTip(); });
    place.replaceChildren(h("div", { class: "picture" }, canvas, mark));
  }
  if (policies.length > 1) {
    const choice = h("span", { class: "choice", role: "group", "aria-label": "policy" }, policies.map(p =>
      h("button", { type: "button", "aria-pressed": String(p === policy), onclick: event => {
        policy = p;
        for (const button of choice.children) button.setAttribute("aria-pressed", String(button === event.target));
        draw();
        say(`The picture shows ${p.name}.`);
      } }, p.name)));
    controls.append(choice);
  }
  if (!policies.every(p => p.uses))
    controls.append(h("span", { class: "scale" }, "0\u00a0%", h("i", { style: `background:linear-gradient(90deg,${HEAT.map(rgb).join(",")})` }), "100\u00a0%"));
  drawToWidth(place, now => { width = now; draw(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}

heading();
table();
showUnserved(policies.flatMap(p => list(p.summary.unserved)));
families();
courses();
completions();
gpuPictures();
