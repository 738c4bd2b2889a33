/* Shared by pages of policies: the policies, each with its colour, and their summaries. */
const HUES = [212, 28, 290, 350, 48, 185, 250, 75, 320, 10]; /* far from the green of ergon, neighbours from each other */
const DASHES = ["8 3", "2 2", "8 3 2 3", "14 4", "5 2 1 2", "1 3", "12 3 4 3", "4 4", "10 2 2 2 2 2", "16 2", "3 1", "6 6", "2 6"];
const policies = list(plan.policies).map((policy, i) => ({
  ...policy, strong: policy.name === "ergon",
  color: policy.name === "ergon" ? "var(--ergon)" : `hsl(${HUES[i % HUES.length]} 60% var(--tone))`,
  dashes: policy.name === "ergon" ? null : DASHES[i % DASHES.length],
}));
/* The line of a policy: its colour, and dashes of its own; that of ergon is whole and heavy. */
const strokeOf = policy => ({ fill: "none", stroke: policy.color, "stroke-width": policy.strong ? 3 : 1.8, "stroke-dasharray": policy.dashes });
const HOUR = 3600;
const hours = seconds => (isNumber(seconds) ? `${digits(seconds / HOUR)}\u00a0h` : NONE);
const count = value => (isNumber(value) ? Math.round(value).toLocaleString("en") : NONE);
const COUNT = [["", 1]], TIMES = [["×", 1]], HOURS = [["h", HOUR]], SHARE = [["%", 0.01]], DOLLARS = [["USD", 1]];
const POWER_UNITS = [["MW", 1e6], ["kW", 1e3], ["W", 1]];
const BIG_ENERGY = [["GJ", 1e9], ["MJ", 1e6], ["kJ", 1e3], ["J", 1]];
const amount = (value, units) => (units === COUNT ? count(value) : quantity(value, units));
const RATE_UNITS = [["M/s", 1e6], ["k/s", 1e3], ["/s", 1]];
const lineIcon = policy => s("svg", { width: 34, height: 12, "aria-hidden": "true" }, s("line", { x1: 0, x2: 34, y1: 6, y2: 6, ...strokeOf(policy) }));

/* Title, key of a summary, units, and whether less is better (null: neither); what decides stands first, where no
 * screen is too narrow for it. */
const METRICS = [
  ["jobs finished", "finished_jobs", COUNT, false],
  ["completion time, mean", "mean_jct_s", HOURS, true],
  ["completion time, median","median_jct_s", HOURS, true],
  ["completion time, 99 %","p99_jct_s", HOURS, true],
  ["waiting and running, all jobs", "mean_time_in_system_s", HOURS, true],
  ["waiting, mean", "mean_queue_s", HOURS, true],
  ["throughput, samples", "mean_throughput", RATE_UNITS, false],
  ["energy", "energy_j", BIG_ENERGY, true],
  ["deadlines met", "deadlines_met", SHARE, false],
  ["finish-time fairness", "mean_finish_time_fairness", TIMES, true],
  ["slowdown", "mean_slowdown", TIMES, true],
  ["GPU time used", "utilization", SHARE, null],
  ["GPU time at work", "goodput", SHARE, null],
  ["free GPUs in pieces", "fragmentation", SHARE, null],
  ["starts and moves", "reconfigurations", COUNT, null],
  ["peak power", "peak_power_w", POWER_UNITS, null],
  ["time slowed by the cap", "throttled_s", HOURS, null],
  ["nodes woken", "wake_ups", COUNT, null],
  ["cost", "cost_usd", DOLLARS, true],
  ["CO2", "co2_kg", [["t", 1e3], ["kg", 1]], true],
];
/* Titles that do not explain themselves. */
const MEANINGS = {
  mean_finish_time_fairness: "completion time divided by that of the job alone in an equal share of the cluster; below 1 it is better than such a share",
  mean_slowdown: "completion time divided by that of the job alone on the GPUs that it requested",
  utilization: "share of the time of all GPUs in which jobs had them",
  goodput: "the same without restarts and lost work",
  fragmentation: "share of the time of free GPUs on a node with a job",
  reconfigurations: "starts of jobs, and changes of their GPUs",
  throttled_s: "time in which the cap of the power, not the policy, lowered clocks",
  mean_throughput: "samples of all jobs in a second",
};
const showMeanings = columns => byId("policies-words").replaceChildren(...columns.filter(([, key]) => MEANINGS[key])
  .flatMap(([title, key]) => [h("dt", {}, title), h("dd", {}, `${MEANINGS[key]}.`)]));

/* Who finishes fewer jobs looks better in these: they say nothing where others finished more. */
const OF_FINISHED = ["mean_jct_s", "median_jct_s", "p99_jct_s", "mean_slowdown", "energy_j", "cost_usd", "co2_kg"];

/* Names the jobs that were not served, each once: the sentences of documents. */
const UNSERVED_MOST = 200;
function showUnserved(entries) {
  const sentences = [...new Set(entries.map(entry => entry.message))];
  byId("unserved-section").hidden = sentences.length === 0;
  byId("unserved-text").textContent = "Nothing fits them, or the policy leaves them waiting for ever." +
    (sentences.length > UNSERVED_MOST ? ` The first ${UNSERVED_MOST} of ${sentences.length.toLocaleString("en")}; the JSON documents have all.` : "");
  byId("unserved").replaceChildren(...sentences.slice(0, UNSERVED_MOST).map(sentence => h("li", {}, sentence)));
}
