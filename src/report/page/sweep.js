/* The page of a sweep: policies with confidence intervals, one case at a time, their frontiers over power caps, and
 * against the load. */
const groups = list(plan.groups), reference = plan.reference;
/* The cases that differ from this one only in their cap, tightest first. */
const capOf = group => (isNumber(group.power_cap) ? group.power_cap : Infinity);
const capsLike = group => groups.filter(other => other.cluster === group.cluster && other.trace === group.trace)
  .sort((a, b) => capOf(a) - capOf(b));
const shown = { group: groups.length ? capsLike(groups[0]).pop() : null, load: null }; /* the reader's choice */
/* A file's name, without its folder if that is unambiguous. */
function shortNames(paths) {
  const names = paths.map(path => path.replace(/.*\//, ""));
  return new Map(paths.map((path, i) => [path, names.filter(name => name === names[i]).length > 1 ? path : names[i]]));
}
const distinct = items => [...new Set(items)];
const clusterNames = shortNames(distinct(groups.map(group => group.cluster))), traceNames = shortNames(list(plan.traces));
const placeName = group => [clusterNames.get(group.cluster), group.trace ? traceNames.get(group.trace) : "all traces"].join(", ");
const capName = group => (isNumber(group.power_cap) ? `${+(100 * group.power_cap).toFixed(1)}\u00a0% of the power` : "no cap");
const groupName = group => (isNumber(group.power_cap) ? `${placeName(group)}, ${capName(group)}` : placeName(group));
const entry = (load, policy) => list(load.policies).find(p => p.name === policy.name) || { metrics: {} };
const metricOf = (load, policy, key) => entry(load, policy).metrics[key] || {};

/* The change of a metric relative to the reference, in percent: {mean, low, high, sure}; null without one. */
function changeOf(load, policy, key) {
  const { change } = metricOf(load, policy, key);
  if (!change || !isNumber(change.mean)) return null;
  const known = isNumber(change.low) && isNumber(change.high);
  return { mean: 100 * change.mean, low: known ? 100 * change.low : null, high: known ? 100 * change.high : null,
    sure: known && change.low * change.high > 0 };
}
const signed = value => `${Math.abs(value) < 0.05 ? "" : value < 0 ? "−" : "+"}${Math.abs(value).toFixed(1)}`;
const changeText = ({ mean, low, high }) => `${signed(mean)}${low === null ? "" : ` (${signed(low)} to ${signed(high)})`}\u00a0%`;

function intervalText({ mean, half_width: half }, units) {
  if (!isNumber(mean)) return NONE;
  const [unit, size] = unitOf(mean, units);
  return [digits(mean / size), isNumber(half) ? `± ${digits(half / size, 2)}` : "", unit].filter(Boolean).join("\u00a0");
}

const seedText = () => [plan.resample ? "the jobs" : null, isNumber(plan.mean_failure_h) ? "failures of nodes" : null]
  .filter(Boolean).join(" and ");

/* The load that is nearest to that of the trace. */
const usualLoad = group => group.loads.reduce((a, b) => (Math.abs(b.load - 1) < Math.abs(a.load - 1) ? b : a));

function heading() {
  byId("job-name").textContent = plan.sweep;
  document.title = `ergon simulate: ${plan.sweep}`;
  const load = shown.load, others = policies.filter(p => p.name !== reference);
  const inSystem = p => metricOf(load, p, "mean_time_in_system_s").mean;
  const known = others.filter(p => isNumber(inSystem(p)));
  const one = known.find(p => p.strong) || (known.length ? known.reduce((a, b) => (inSystem(b) < inSystem(a) ? b : a)) : null);
  const change = one && changeOf(load, one, "mean_time_in_system_s");
  const several = groups.length > 1 || shown.group.loads.length > 1;
  if (change && (change.low === null || change.sure))
    byId("headline").textContent = `Under ${one.name} a job waits and runs ${hours(inSystem(one))} on average: ${lessOrMore(-change.mean, "time")} than under ${reference}.`;
  else if (change)
    byId("headline").textContent = `${plural(plan.points, "simulation")} show no significant difference between ${one.name} and ${reference} in the time that a job waits and runs.`;
  else
    byId("headline").textContent = `${plural(plan.points, "simulation")} of ${plural(policies.length, "policy", "policies")}.`;
  sayNext(plan.missing ? "finish the sweep with the same command: " : plan.seeds > 1 ? "compare the policies for your case and load, then run one on a Slurm cluster: " : "repeat with more seeds to see how certain this is (key seeds of the sweep): ",
    code(plan.missing || plan.seeds < 2 ? "ergon simulate --sweep sweep.yaml" : "ergon schedule"), ".");
  byId("subtitle").textContent = `${change && several ? `In the case ${groupName(shown.group)} at load ${load.load}. ` : ""}${plural(plan.points, "simulation")}` +
    (plan.rounds ? `, ${plan.rounds} rounds of 300 s each` : "") +
    (plan.missing ? `. ${plan.missing.toLocaleString("en")} are missing: the sweep is not complete.` : ".");
  byId("tiles").append(
    tile(policies.length, policies.length === 1 ? "policy" : "policies"),
    tile(groups.length, groups.length === 1 ? "case of cluster, trace and power" : "cases of cluster, trace and power"),
    tile(shown.group.loads.length, shown.group.loads.length === 1 ? "load" : "loads"),
    tile(plan.seeds, plan.seeds === 1 ? "seed" : "seeds"));
}

/* ---- one case ---- */
function comparable(load, policy, key) {
  const finished = changeOf(load, policy, "finished_jobs");
  return !OF_FINISHED.includes(key) || (finished && Math.abs(finished.mean) < 1);
}

function cell(load, policy, [title, key, units, less]) {
  const change = policy.name === reference ? null : changeOf(load, policy, key);
  const verdict = change && change.sure && less !== null && comparable(load, policy, key) ? (change.mean < 0 === less ? "better" : "worse") : null;
  return h("td", { "data-label": title }, intervalText(metricOf(load, policy, key), units),
    change ? h("small", { class: verdict }, [changeText(change), verdict].filter(Boolean).join(", ")) : null);
}

function table() {
  const load = shown.load;
  const columns = METRICS.filter(([, key]) => policies.some(p => isNumber(metricOf(load, p, key).mean)));
  showMeanings(columns);
  byId("policies").replaceChildren(h("table", { class: "intervals" }, caption(`Results of each policy: ${groupName(shown.group)}, load ${load.load}`),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "policy"), columns.map(([title]) => h("th", { scope: "col" }, title)))),
    h("tbody", {}, policies.map(policy => h("tr", {},
      h("th", { scope: "row" }, lineIcon(policy), policy.name, h("small", {}, policy.name === reference ? "the reference" : policy.what)),
      columns.map(column => cell(load, policy, column)))))));
}

function choices(redraw) {
  const choice = (title, items, name, pick) => h("label", {}, title, h("select", { onchange: event => {
    pick(items[event.target.selectedIndex]);
    redraw();
    say(`The page shows ${groupName(shown.group)} at load ${shown.load.load}.`);
  } }, items.map(item => h("option", { selected: item === shown.group || item === shown.load }, name(item)))));
  const loads = () => choice("Load", shown.group.loads, load => String(load.load), load => { shown.load = load; });
  const place = byId("choices");
  const pickGroup = group => { /* the load stays: all groups have the same */
    const index = shown.group.loads.indexOf(shown.load);
    shown.group = group;
    shown.load = group.loads[index];
    place.lastChild.replaceWith(loads());
  };
  place.append(choice("Case", groups, groupName, pickGroup), loads());
}

/* ---- against the load ---- */
const CHARTS = [
  ["mean_time_in_system_s", "Waiting and running, mean of all jobs"],
  ["mean_jct_s", "Completion time, mean of finished jobs"],
  ["p99_jct_s", "Completion time, 99\u00a0% of finished jobs"],
  ["mean_throughput", "Throughput"],
  ["energy_j", "Energy of all GPUs"],
  ["utilization", "GPU time used"],
];

function loadChart([key, title]) {
  const [, , units] = METRICS.find(metric => metric[1] === key), loads = [...shown.group.loads].sort((a, b) => a.load - b.load);
  const lines = policies.map(policy => ({ policy, points: loads.map(load => ({ load: load.load, ...metricOf(load, policy, key) })).filter(p => isNumber(p.mean)) }))
    .filter(line => line.points.length);
  if (!lines.length) return null;
  const high = p => p.mean + (p.half_width || 0), low = p => Math.max(Math.min(0, p.mean), p.mean - (p.half_width || 0)), all = lines.flatMap(line => line.points);
  const [unit, size] = unitOf(Math.max(...all.map(high)), units), place = h("div", {});
  drawToWidth(place, width => {
    const height = 240, margin = { left: 46, right: 14, top: 24, bottom: 40 };
    const [bottom, top] = limits(all.flatMap(p => [low(p) / size, high(p) / size]), 0.05, 0.05);
    const { frame, atX, atY } = axes(width, height, margin,
      { low: loads[0].load, high: loads[loads.length - 1].load, title: "load (1: as in the trace)" },
      { low: Math.max(bottom, Math.min(0, ...all.map(p => p.mean / size))), high: top, title: (unit && unit.replace(/^(.*)\/s$/, "$1samples/s")) || "jobs" });
    const x = p => atX(p.load).toFixed(1), y = value => atY(value / size).toFixed(1);
    const bands = lines.map(({ policy, points }) => s("path", { class: "band", fill: policy.color, opacity: 0.16, stroke: "none",
      d: `M${[...points.map(p => `${x(p)},${y(high(p))}`), ...points.map(p => `${x(p)},${y(low(p))}`).reverse()].join("L")}Z` }));
    const means = lines.map(({ policy, points }) => [
      s("path", { ...strokeOf(policy), d: `M${points.map(p => `${x(p)},${y(p.mean)}`).join("L")}` }),
      points.map(p => s("circle", { cx: x(p), cy: y(p.mean), r: policy.strong ? 3.5 : 2.6, fill: policy.color }))]);
    const svg = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: "application",
      "aria-label": `${title} against the load. Arrow keys move between loads.` }, frame, bands, means);
    const textAt = i => [`load ${loads[i].load}`,
      ...lines.map(({ policy }) => `${policy.name}: ${intervalText(metricOf(loads[i], policy, key), [[unit, size]])}`)].join("\n");
    addCursor(svg, { top: margin.top, bottom: height - margin.bottom, places: loads.map(load => atX(load.load)), at: 0, textAt });
    place.replaceChildren(svg);
  });
  return h("div", {}, h("h3", {}, title), place);
}

function charts() {
  byId("loads-section").hidden = shown.group.loads.length < 2;
  if (shown.group.loads.length < 2) return;
  const intervals = plan.pool_traces || plan.seeds > 1 ? `: means and their ${digits(100 * plan.confidence, 2)}\u00a0% intervals, which are cut at zero. ` : ". ";
  byId("loads-text").textContent = `${groupName(shown.group)}${intervals}At load 2, jobs arrive twice as fast as in the trace.`;
  byId("loads-legend").replaceChildren(...policies.map(p => h("span", {}, lineIcon(p), p.name)));
  byId("loads").replaceChildren(...CHARTS.map(loadChart).filter(Boolean));
}

/* ---- time and energy under power caps ---- */
function capPoints() {
  return policies.map(policy => ({ policy, points: capsLike(shown.group).map(group => {
    const load = group.loads.find(other => other.load === shown.load.load);
    const of = key => metricOf(load, policy, key);
    return { policy, group, time: of("mean_time_in_system_s"), energy: of("energy_j"), finished: of("finished_jobs").mean };
  }).filter(p => isNumber(p.time.mean) && isNumber(p.energy.mean)) })).filter(line => line.points.length);
}

function capChart(lines) {
  const all = lines.flatMap(line => line.points), place = h("div", {});
  const [timeUnit, timeSize] = unitOf(Math.max(...all.map(p => p.time.mean)), HOURS);
  const [energyUnit, energySize] = unitOf(Math.max(...all.map(p => p.energy.mean)), BIG_ENERGY);
  drawToWidth(place, width => {
    const height = Math.round(Math.min(420, Math.max(280, width * 0.5)));
    const [xLow, xHigh] = limits(all.map(p => p.time.mean / timeSize), 0.05, 0.07), [yLow, yHigh] = limits(all.map(p => p.energy.mean / energySize), 0.08, 0.08);
    const { frame, atX, atY } = axes(width, height, { left: 46, right: 14, top: 26, bottom: 42 },
      { low: Math.max(0, xLow), high: xHigh, title: `Waiting and running, mean of all jobs (${timeUnit})` },
      { low: Math.max(0, yLow), high: yHigh, title: `Energy of all GPUs (${energyUnit})` });
    const x = p => atX(p.time.mean / timeSize), y = p => atY(p.energy.mean / energySize);
    const drawn = lines.map(({ policy, points }) => [
      s("path", { ...strokeOf(policy), d: `M${points.map(p => `${x(p).toFixed(1)},${y(p).toFixed(1)}`).join("L")}` }),
      points.map(p => s("circle", { cx: x(p), cy: y(p), r: policy.strong ? 4 : 3, fill: policy.color }))]);
    const named = lines.find(line => line.policy.strong) || lines[0];
    const apart = named.points.filter((p, i) => named.points.slice(i + 1).every(q => Math.abs(x(p) - x(q)) > 45 || Math.abs(y(p) - y(q)) > 13));
    const names = apart.map(p => s("text", { class: "halo", x: x(p) + 7, y: y(p) - 7 }, capName(p.group).replace(" of the power", "")));
    const svg = s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: "application",
      "aria-label": "Time waiting and running against energy under each power cap. Arrow keys move between caps and policies." }, frame, drawn, names);
    addPlaces(svg, lines.map(({ points }) => points.map(p => ({ x: x(p), y: y(p),
      text: `${p.policy.name}, ${capName(p.group)}\n${intervalText(p.time, HOURS)} waiting and running, ${intervalText(p.energy, BIG_ENERGY)}` }))), { reach: 40 });
    place.replaceChildren(svg);
  });
  return place;
}

function caps() {
  const lines = capsLike(shown.group).length > 1 ? capPoints() : [];
  byId("caps-section").hidden = lines.length === 0;
  if (!lines.length) return;
  byId("caps-text").textContent = `${placeName(shown.group)} at load ${shown.load.load}: each point is a cap on the power of all GPUs. Further left is faster, further down needs less energy` +
    `${new Set(lines.flatMap(line => line.points.map(p => p.finished))).size > 1 ? "; if fewer jobs finish, less energy is not an advantage." : "."}`;
  byId("caps-legend").replaceChildren(...lines.map(({ policy }) => h("span", {}, lineIcon(policy), policy.name)));
  byId("caps").replaceChildren(capChart(lines));
}

/* ---- the method ---- */
function method() {
  const draws = seedText(), level = `${digits(100 * plan.confidence, 2)}\u00a0%`;
  const repeats = plan.pool_traces ? "traces" : "seeds", texts = [];
  if (plan.pool_traces)
    texts.push(`The ${plan.traces.length} traces count as samples of one workload. Values are the means of each trace` +
      `${plan.seeds > 1 ? " over its seeds" : ""}; the intervals are those of the mean over traces like these.`);
  else if (plan.seeds > 1)
    texts.push(`Each of the ${plan.seeds} seeds gives new ${draws}; the intervals are those of the mean over such draws. ` +
      "They get narrower with more seeds, but do not include the difference between the trace and future use.");
  else
    texts.push("Each case was simulated once: the variation of the values is unknown, so there are no intervals.");
  if (plan.resample)
    texts.push("Jobs are drawn as runs of consecutive jobs of the trace with the times between them, so bursts stay " +
      "together, but days and nights are lost.");
  if (plan.pool_traces || plan.seeds > 1)
    texts.push(`Every policy gets the same ${repeats}, so the changes relative to ${reference} (small) are means of the pairs' ratios ` +
      `and are often more accurate than the values themselves. Intervals are Student's at ${level}, each separately: one of twenty changes that ` +
      "are pure chance is expected to look significant.");
  byId("method").append(...texts.map(text => h("p", {}, text)));
  byId("policies-note").textContent = policies.length < 2 ? "" :
    `Small: the change relative to ${reference}.` + (plan.pool_traces || plan.seeds > 1 ? " It is marked better or worse if its interval does not contain zero; for " +
      "completion time, which is of finished jobs, and energy only if the same number of jobs finished." : "");
}

if (groups.length) {
  shown.load = usualLoad(shown.group);
  heading();
  const draw = () => { table(); showUnserved(list(shown.group.unserved)); caps(); charts(); };
  choices(draw);
  draw();
  method();
}
