/*
 * The pages that ergon writes, in a headless Chromium: the rules of rules.js at several widths, in light and dark, on
 * paper, every stop of the Tab key, every chart under arrow keys, and the colours of the style. Each check is shown to
 * fail on a broken page. Skipped (status 77) without a Chromium.
 *
 * Usage: node test_browser.js ERGON SOURCE_DIR [PAGE]...
 */
"use strict";
const assert = require("assert");
const { execFileSync } = require("child_process");
const fs = require("fs");
const http = require("http");
const os = require("os");
const path = require("path");
const { findChromium, startChromium } = require("./chromium.js");
const { changePage, gpuRun, prepareTraining, sweepText, way } = require("./documents.js");
const livePage = require("./live_page.js");

const [ergon, source, ...only] = process.argv.slice(2);
const command = findChromium();
if (!command) {
  console.log("skipped: there is no Chromium here (Debian: chromium)");
  process.exit(77);
}
const folder = fs.mkdtempSync(path.join(os.tmpdir(), "ergon-browser-"));
const inFolder = name => path.join(folder, name), example = name => path.join(source, "examples", name);
const run = (...args) => execFileSync(ergon, [...args, "--quiet"], { cwd: folder, stdio: ["ignore", "pipe", "inherit"],
  env: { ...process.env, ERGON_POWERCAP: "/nonexistent" } });

/* The page notes what answers to a pointer. */
const BEFORE = `${fs.readFileSync(path.join(__dirname, "rules.js"), "utf8")}
{
  const listen = EventTarget.prototype.addEventListener;
  window.pointedAt = [];
  EventTarget.prototype.addEventListener = function (name, ...rest) {
    if (/^(pointer(move|enter|over|down)|mouse|click)/.test(name) && this instanceof Element) window.pointedAt.push(this);
    return listen.call(this, name, ...rest);
  };
}`;

/* ---- the pages, each made by the command that people use ---- */
function changed(from, to, change) {
  changePage(inFolder(from), inFolder(to), change);
  return to;
}
const PAGES = {
  report() {
    run("optimize", example("quickstart.yaml"), "--output", "optimize");
    return "optimize/report.html";
  },
  memory() {
    run("memory", example("mixed/llama-3.2-1b_h800_a100.yaml"), "--report", "memory.html");
    return "memory.html";
  },
  "memory that does not fit"() {
    if (!fs.existsSync(inFolder("memory.html"))) PAGES.memory();
    return changed("memory.html", "full.html", plan => Object.assign(plan, { fits: false, budget_bytes: plan.peak_bytes / 2 }));
  },
  layouts() {
    run("layout", example("kwai/llama2-7b.yaml"), "--top", "3", "--output", "layouts");
    return "layouts/layouts.html";
  },
  cluster() {
    run("simulate", example("cluster/cluster.yaml"), example("cluster/trace.csv"), "--profiles", example("cluster/profiles"),
      "--policy", "fcfs,arena,ergon,ergon-thrifty", "--output", "simulate");
    return "simulate/report.html";
  },
  "cluster with many policies"() {
    if (!fs.existsSync(inFolder("simulate"))) PAGES.cluster();
    const names = ["fcfs-relaxed", "elasticflow", "elasticflow-ls", "tiresias", "gavel", "gavel-fair", "sia", "gandiva", "arena-ddl"];
    return changed("simulate/report.html", "many.html", plan => {
      plan.policies.push(...names.map((name, i) => ({ ...plan.policies[i % 2], name })));
      plan.policies[0].summary.unserved = [{ message: `/a/folder/${"with-a-long-name/".repeat(6)}trace.csv:375: policy fcfs leaves job 'job-374' waiting` }];
    });
  },
  sweep() {
    fs.writeFileSync(inFolder("sweep.yaml"), sweepText(example));
    run("simulate", "--sweep", "sweep.yaml", "--output", "sweep");
    return "sweep/report.html";
  },
  training() {
    prepareTraining(run, inFolder, example);
    run("train", "train/tiny.yaml", "--device", "host", "--steps", "8", "--output", "trained");
    return "trained/report.html";
  },
  "training on GPUs"() {
    if (!fs.existsSync(inFolder("trained"))) PAGES.training();
    return changed("trained/report.html", "gpus.html", plan => Object.assign(plan, gpuRun(), {
      trials: { best: "ergon point 2", reference: "sequential", changed: null, unmet: false, series: 1, rounds: 4,
        saved: { time: 0.1234, time_uncertainty: 0.0041, energy: 0.098, energy_uncertainty: null }, ways: [way("sequential", 100, 0.5, 71, 2.5), way("ergon point 2", 87.66, 0.5, 64, 2.5)] } }));
  },
  study() {
    run("characterize", example("characterize/charllm-placement-h200.yaml"), "--output", "study");
    return "study/report.html";
  },
  live() {
    livePage.write(source, inFolder("live.html"), livePage.status());
    return "live.html";
  },
};

/* The views in which every rule must hold. */
const VIEWS = [
  { name: "1200 px", width: 1200 }, { name: "1200 px, dark", width: 1200, scheme: "dark" }, { name: "500 px", width: 500 },
  { name: "320 px", width: 320 }, { name: "320 px, dark, no motion", width: 320, scheme: "dark", calm: true },
  { name: "paper, from a dark screen", width: 718, scheme: "dark", medium: "print" },
];
async function look(page, view) {
  await page.show(view);
  await page.resize(view.width);
  return page.run(() => Object.entries(pageRules.RULES).flatMap(([name, rule]) => rule().map(fault => `${name}: ${fault}`)));
}

/* ---- keys ---- */

/* Goes through the page by Tab: every element that takes the focus, once, in the order of the document, with a frame
 * that can be seen. */
async function tabThrough(page) {
  const faults = [], count = await page.run(() => {
    pageRules.focusable().forEach((element, i) => { element.dataset.stop = i; });
    document.activeElement.blur();
    return pageRules.focusable().length;
  });
  for (let stop = 0; stop < count; stop++) {
    await page.press("Tab");
    const [at, name, frame, contrast, inView] = await page.run(() => {
      const element = document.activeElement, style = getComputedStyle(element), box = element.getBoundingClientRect();
      const frame = style.outlineStyle === "none" ? 0 : parseFloat(style.outlineWidth);
      return [Number(element.dataset.stop), pageRules.nameOfTag(element), frame,
        pageRules.contrast(pageRules.colour(style.outlineColor), pageRules.ground(element, false)), box.bottom > 0 && box.top < innerHeight];
    });
    if (at !== stop) { faults.push(`Tab number ${stop + 1} reaches ${name}, which is number ${at + 1} in the document`); break; }
    if (frame < 2 || contrast < 3) faults.push(`the focus on ${name} cannot be seen: ${frame} px, contrast ${contrast.toFixed(1)}`);
    if (!inView) faults.push(`${name} has the focus outside the window`);
  }
  return faults;
}

/* Uses everything by keys: charts say what the arrow keys reach, buttons are pressed, choices chosen. */
async function useByKeys(page) {
  const faults = [];
  const count = await page.run(() => pageRules.focusable().length);
  for (let i = 0; i < count; i++) {
    const kind = await page.run(i => {
      const element = pageRules.focusable()[i];
      if (!element) return null;
      document.getElementById("said") && (document.getElementById("said").textContent = "");
      element.focus();
      return { role: element.getAttribute("role"), tag: element.tagName, name: pageRules.nameOfTag(element), pressed: element.getAttribute("aria-pressed"),
        options: element.options ? element.options.length : 0 };
    }, i);
    if (!kind) continue;
    const said = () => page.run(() => (document.getElementById("said") || { textContent: "" }).textContent);
    if (kind.role === "application") {
      const heard = new Set();
      for (const key of ["ArrowRight", "ArrowRight", "ArrowLeft", "ArrowDown", "End", "Home"]) {
        await page.press(key);
        heard.add(await said());
      }
      heard.delete("");
      if (heard.size < 1) faults.push(`arrow keys on ${kind.name} say nothing`);
      const tip = await page.run(() => { const tip = document.getElementById("tip"), box = tip.getBoundingClientRect();
        return tip.hidden ? "is hidden" : box.left < 0 || box.right > innerWidth || box.top < 0 || box.bottom > innerHeight ? "lies outside the window" : ""; });
      if (tip) faults.push(`the tip of ${kind.name} ${tip}`);
      await page.press("Escape");
      if (!await page.run(() => document.getElementById("tip").hidden)) faults.push(`Escape does not hide the tip of ${kind.name}`);
    } else if (kind.tag === "BUTTON" && kind.pressed !== null) {
      await page.press("Enter");
      const now = await page.run(() => document.activeElement.getAttribute("aria-pressed"));
      if (now !== "true") faults.push(`Enter does not press ${kind.name}`);
    } else if (kind.tag === "SELECT" && kind.options > 1) {
      const before = await page.run(() => document.activeElement.selectedIndex);
      await page.press(before ? "ArrowUp" : "ArrowDown");
      if (await page.run(() => document.activeElement.selectedIndex) === before) faults.push(`arrow keys do not change ${kind.name}`);
      if (!await said()) faults.push(`a change of ${kind.name} is not said`);
    }
  }
  return faults;
}

/* ---- colours, from the variables of the style ---- */
function paletteFaults() {
  const style = getComputedStyle(document.documentElement), value = name => style.getPropertyValue(name).trim(), faults = [];
  const need = (least, inks, grounds) => inks.forEach(ink => grounds.forEach(ground => {
    if (!value(ink) || !value(ground)) { faults.push(`${ink} or ${ground} is not there`); return; }
    const reached = pageRules.contrast(pageRules.colour(value(ink)), pageRules.colour(value(ground)));
    if (reached < least) faults.push(`${ink} on ${ground}: ${reached.toFixed(2)}, must be ${least}`);
  }));
  if (value("--fig-card")) {
    need(4.5, ["--fig-ink", "--fig-quiet", "--fig-green", "--fig-blue"], ["--fig-card", "--page"]);
    return faults;
  }
  const memory = ["weights", "gradients", "optimizer", "activations", "offload", "head", "layer", "other", "rounding"].map(part => `--memory-${part}`);
  const parts = Array.from({ length: 8 }, (_, i) => `--part-${i}`);
  need(4.5, ["--ink", "--quiet", "--accent", "--worse"], ["--card", "--page"]);
  need(4.5, ["--card"], ["--ink"]); /* the tip, and a pressed button */
  need(4.5, ["--on-part"], [...memory, ...parts]);
  need(4.5, ["--box-ink"], ["--gemm", "--memory", "--attention", "--communication", "--join"]);
  need(3, [...memory, ...parts, "--sequential", "--sequential-clocks", "--nanobatching", "--nanobatching-clocks", "--ergon", "--static", "--dynamic", "--focus"], ["--card"]);
  return faults;
}

/* ---- tests ---- */
let failed = 0;
async function test(name, body) {
  try {
    await body();
    console.log(`ok       ${name}`);
  } catch (error) {
    failed++;
    console.log(`FAILED   ${name}\n${error.stack}`);
  }
}
const none = (faults, where) => assert.ok(faults.length === 0, `${where}: ${faults.length} faults\n  ${faults.slice(0, 12).join("\n  ")}`);
const some = (faults, what) => assert.ok(faults.length > 0, `${what} was not found`);
const wanted = name => !only.length || only.includes(name);

async function checkPage(browser, name, file) {
  await test(`${name}: the rules, in every view`, async () => {
    const url = `file://${inFolder(file)}`, page = await browser.open(url, { before: BEFORE });
    const faults = [];
    for (const view of VIEWS) {
      faults.push(...(await look(page, view)).map(fault => `${view.name}: ${fault}`));
      faults.push(...(await page.run(paletteFaults)).map(fault => `${view.name}: ${fault}`));
    }
    none(faults, name);
    await page.show();
    await page.resize(1200);
    none(await tabThrough(page), `${name}, Tab`);
    none(await useByKeys(page), `${name}, keys`);
    await page.resize(320);
    none(await useByKeys(page), `${name}, keys at 320 px`);
    none(page.errors, `${name}, errors of its script`);
    await page.close();
  });
}

/* A check that cannot fail finds nothing: here each must. Returns the tests, to be run. */
async function checksOfChecks(browser) {
  const url = `file://${inFolder(PAGES.memory())}`, broken = (what, media, before, breakIt, check) => () => test(`a broken page is found: ${what}`, async () => {
    const page = await browser.open(url, { before: BEFORE });
    await page.show(media);
    if (before) none(await before(page), "before it is broken");
    await breakIt(page);
    some(await check(page), what);
    await page.close();
  });
  const page = await browser.open(url, { before: BEFORE });
  const [names, breaks] = await page.run(() => [Object.keys(pageRules.RULES), Object.keys(pageRules.BREAKS)]);
  await page.close();
  assert.deepStrictEqual(names, breaks, "each rule has a way to break it");
  const style = text => page => page.run(text => { document.head.append(Object.assign(document.createElement("style"), { textContent: text })); }, text);
  return [
    ...names.map(name => {
      const rule = page => page.run(name => pageRules.RULES[name](), name);
      return broken(name, { medium: /paper/.test(name) ? "print" : "screen", calm: /moves/.test(name) }, rule,
        page => page.run(name => { pageRules.BREAKS[name](); }, name), rule);
    }),
    broken("a focus that cannot be seen", {}, null, style("* { outline: none !important; }"), tabThrough),
    broken("an order that is not the document's", {}, null, page => page.run(() => { pageRules.focusable().pop().tabIndex = 1; }), tabThrough),
    broken("charts that do not answer to keys", {}, null, page => page.run(() => { addEventListener("keydown", event => event.stopImmediatePropagation(), true); }), useByKeys),
    broken("colours too near to each other", {}, page => page.run(paletteFaults), style(":root { --quiet: #9aa5b0 !important; }"), page => page.run(paletteFaults)),
  ];
}

/* A page that is served: what changes is said once, and the focus stays where it is. */
async function checkLive(browser) {
  await test("live: a change is said once, and takes no focus", async () => {
    let status = livePage.status();
    livePage.write(source, inFolder("served.html"), status);
    const server = http.createServer((request, answer) => {
      status = { ...status, at_unix_s: Date.now() / 1000 };
      answer.setHeader("Content-Type", /json/.test(request.url) ? "application/json" : "text/html; charset=utf-8");
      answer.end(/json/.test(request.url) ? JSON.stringify(status) : fs.readFileSync(inFolder("served.html")));
    });
    await new Promise(resolve => server.listen(0, "127.0.0.1", resolve));
    const page = await browser.open(`http://127.0.0.1:${server.address().port}/`, { before: BEFORE });
    await page.run(() => {
      window.heard = [];
      new MutationObserver(() => window.heard.push(document.getElementById("said").textContent)).observe(document.getElementById("said"), { childList: true });
      document.getElementById("map").focus();
    });
    const until = async (what, script) => {
      for (let tries = 0; tries < 300; tries++) {
        if (await page.run(script)) return;
        await new Promise(resolve => setTimeout(resolve, 100));
      }
      throw new Error(`never: ${what}`);
    };
    const asked = () => page.run(() => performance.getEntriesByType("resource").length);
    const before = await asked();
    await until("two calm updates", `performance.getEntriesByType("resource").length >= ${before + 2}`);
    assert.deepStrictEqual(await page.run(() => window.heard), [], "a calm cluster is silent");
    status = { ...status, jobs: status.jobs.slice(0, 2) };
    await until("the change", () => window.heard.length > 0);
    assert.deepStrictEqual(await page.run(() => window.heard), ["2 jobs run on 8 of 12 GPUs; none waits."]);
    assert.strictEqual(await page.run(() => document.activeElement.id), "map");
    none(await look(page, VIEWS[0]), "while it is served");
    await page.close();
    server.closeAllConnections();
    server.close();
  });
}

/* Runs tasks, a few at a time: they mostly wait for the browser to draw. */
async function runAll(tasks) {
  const rest = [...tasks];
  await Promise.all(Array.from({ length: 3 }, async () => {
    while (rest.length) await rest.shift()();
  }));
}

(async () => {
  const browser = startChromium(command), files = new Map();
  try {
    for (const name of Object.keys(PAGES).filter(wanted)) await test(`${name}: is written`, async () => { files.set(name, PAGES[name]()); });
    await runAll([...[...files].map(([name, file]) => () => checkPage(browser, name, file)),
      ...(wanted("checks") ? await checksOfChecks(browser) : []), ...(wanted("served") ? [() => checkLive(browser)] : [])]);
  } finally {
    await browser.close();
    fs.rmSync(folder, { recursive: true });
  }
  process.exit(failed ? 1 : 0);
})().catch(error => { console.error(error); process.exit(1); });
