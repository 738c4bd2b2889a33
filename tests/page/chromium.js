/*
 * Drives a headless Chromium through its own pipe: opens pages, sets the size, the colours and the
 * medium, presses keys, runs functions in a page. Needs Node.js alone, no package.
 */
"use strict";
const { execFileSync, spawn } = require("child_process");
const fs = require("fs");
const os = require("os");
const path = require("path");

const NAMES = ["chromium", "chromium-browser", "google-chrome"], ANSWER_MS = 120000;

/* The command of a Chromium on this machine; null without one. */
function findChromium() {
  for (const name of NAMES)
    try {
      return execFileSync("sh", ["-c", `command -v ${name}`], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim();
    } catch (error) { /* the next one */ }
  return null;
}

/* Starts it. The result opens pages with open(), and ends with close(). */
function startChromium(command) {
  const profile = fs.mkdtempSync(path.join(os.tmpdir(), "ergon-chromium-"));
  const child = spawn(command, ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--no-first-run", "--disable-extensions", "--disable-background-networking", "--allow-file-access-from-files",
    /* Each page is a window that is drawn, wherever the others are. */
    "--disable-backgrounding-occluded-windows", "--disable-renderer-backgrounding",
    `--user-data-dir=${profile}`, "--remote-debugging-pipe", "about:blank"], { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
  const waiting = new Map(), listeners = [];
  let last = 0, rest = "", ended = null;
  const fail = why => {
    ended = new Error(why);
    for (const { reject } of waiting.values()) reject(ended);
    waiting.clear();
  };
  child.on("error", error => fail(`${command} did not start: ${error.message}`));
  child.on("exit", code => fail(`${command} ended with status ${code}`));
  child.stdio[3].on("error", () => {});
  child.stdio[4].setEncoding("utf8");
  child.stdio[4].on("data", block => {
    const messages = (rest + block).split("\0");
    rest = messages.pop();
    for (const message of messages.map(text => JSON.parse(text))) {
      const call = waiting.get(message.id);
      waiting.delete(message.id);
      if (!call) listeners.forEach(listener => listener(message));
      else if (message.error) call.reject(new Error(`${call.method}: ${message.error.message}`));
      else call.resolve(message.result);
    }
  });
  const send = (method, params = {}, sessionId = undefined) => new Promise((resolve, reject) => {
    if (ended) { reject(ended); return; }
    const id = ++last, timer = setTimeout(() => {
      waiting.delete(id);
      reject(new Error(`${method}: no answer after ${ANSWER_MS / 1000} s`));
    }, ANSWER_MS);
    const end = settle => value => { clearTimeout(timer); settle(value); };
    waiting.set(id, { method, resolve: end(resolve), reject: end(reject) });
    child.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
  });
  const event = (name, sessionId) => new Promise(resolve => {
    const listener = message => {
      if (message.method !== name || message.sessionId !== sessionId) return;
      listeners.splice(listeners.indexOf(listener), 1);
      resolve(message.params);
    };
    listeners.push(listener);
  });

  /* Opens a page; `width` and `height` in CSS pixels. `before` is a script that runs in the page before its own. */
  async function open(url, { width = 1200, height = 900, before = "" } = {}) {
    const { targetId } = await send("Target.createTarget", { url: "about:blank", newWindow: true });
    const { sessionId } = await send("Target.attachToTarget", { targetId, flatten: true });
    const tell = (method, params) => send(method, params, sessionId);
    const errors = [];
    listeners.push(message => {
      if (message.sessionId === sessionId && message.method === "Runtime.exceptionThrown") {
        const { exception, text } = message.params.exceptionDetails;
        errors.push((exception && exception.description) || text);
      }
    });
    const page = {
      errors,
      /* Runs a function in the page with these arguments, and brings its result back. */
      async run(script, ...args) {
        const expression = typeof script === "string" ? script : `(${script})(${args.map(arg => JSON.stringify(arg)).join(",")})`;
        const { result, exceptionDetails: thrown } = await tell("Runtime.evaluate", { expression, returnByValue: true, awaitPromise: true });
        if (thrown) throw new Error((thrown.exception && thrown.exception.description) || thrown.text);
        return result.value;
      },
      async resize(newWidth, newHeight = height) {
        await tell("Emulation.setDeviceMetricsOverride", { width: newWidth, height: newHeight, deviceScaleFactor: 1, mobile: false });
        await page.settle();
      },
      /* scheme: "light" or "dark"; medium: "screen" or "print"; calm: prefers-reduced-motion. */
      async show({ scheme = "light", medium = "screen", calm = false } = {}) {
        await tell("Emulation.setEmulatedMedia", { media: medium, features: [{ name: "prefers-color-scheme", value: scheme },
          { name: "prefers-reduced-motion", value: calm ? "reduce" : "no-preference" }] });
        await page.settle();
      },
      /* Until what was set is laid out and observers of sizes have answered. */
      settle: () => page.run(() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))),
      /* A key with its code, or a named one: "Tab", "Enter", "ArrowRight". */
      async press(key, { shift = false } = {}) {
        const code = { Tab: 9, Enter: 13, Escape: 27, End: 35, Home: 36, ArrowLeft: 37, ArrowUp: 38, ArrowRight: 39, ArrowDown: 40, " ": 32 }[key];
        const about = { key, code: key, windowsVirtualKeyCode: code, modifiers: shift ? 8 : 0, text: key === "Enter" ? "\r" : key === " " ? " " : undefined };
        await tell("Input.dispatchKeyEvent", { type: about.text ? "keyDown" : "rawKeyDown", ...about });
        await tell("Input.dispatchKeyEvent", { type: "keyUp", ...about, text: undefined });
      },
      close: () => send("Target.closeTarget", { targetId }),
    };
    await tell("Page.enable");
    await tell("Runtime.enable");
    await tell("Emulation.setFocusEmulationEnabled", { enabled: true });
    await tell("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: false });
    if (before) await tell("Page.addScriptToEvaluateOnNewDocument", { source: before });
    const loaded = event("Page.loadEventFired", sessionId);
    await tell("Page.navigate", { url });
    await loaded;
    await page.settle();
    return page;
  }

  async function close() {
    const gone = new Promise(resolve => child.on("close", resolve));
    if (!ended) await send("Browser.close").catch(() => {});
    const timer = setTimeout(() => child.kill("SIGKILL"), 10000);
    if (child.exitCode === null && child.signalCode === null) await gone;
    clearTimeout(timer);
    fs.rmSync(profile, { recursive: true, force: true, maxRetries: 5, retryDelay: 200 });
  }
  return { open, close };
}

module.exports = { findChromium, startChromium };
