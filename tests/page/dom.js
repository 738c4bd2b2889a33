/*
 * As much of a browser as the pages of reports use, so that their scripts run without one: elements
 * that remember what was put into them, a canvas that lists what was painted, and a place of fixed
 * width. Nothing is laid out.
 */
"use strict";
const fs = require("fs");
const vm = require("vm");

const WIDTH = 800, CHARACTER = 6.5;

class Element {
  constructor(tag) {
    Object.assign(this, { tag, attributes: {}, nodes: [], listeners: {}, style: {}, dataset: {}, parentNode: null, hidden: false });
    this.clientWidth = WIDTH;
    this.selectedIndex = 0;
  }
  get children() { return this.nodes.filter(node => node instanceof Element); }
  get lastChild() { return this.nodes[this.nodes.length - 1]; }
  get isConnected() { return true; }
  get textContent() { return this.nodes.map(node => (node instanceof Element ? node.textContent : node)).join(""); }
  set textContent(text) { this.nodes = [String(text)]; }
  append(...nodes) {
    for (const node of nodes) {
      if (node instanceof Element) node.parentNode = this;
      this.nodes.push(node instanceof Element ? node : String(node));
    }
  }
  replaceChildren(...nodes) { this.nodes = []; this.append(...nodes); }
  replaceWith(node) {
    this.parentNode.nodes[this.parentNode.nodes.indexOf(this)] = node;
    node.parentNode = this.parentNode;
  }
  setAttribute(name, value) { this.attributes[name] = String(value); }
  removeAttribute(name) { delete this.attributes[name]; }
  getAttribute(name) { return name in this.attributes ? this.attributes[name] : null; }
  addEventListener(name, listener) { (this.listeners[name] = this.listeners[name] || []).push(listener); }
  getBoundingClientRect() { return { left: 0, top: 0, width: WIDTH, height: 300 }; }
  focus() {}
  getContext() {
    this.painted = [];
    return {
      fillRect: (x, y, width, height) => this.painted.push({ x, y, width, height }),
      fillText: (text, x, y) => this.painted.push({ text, x, y }),
      measureText: text => ({ width: CHARACTER * text.length }),
      scale() {},
    };
  }
  /* For tests: every element below with this tag, or for which `is` holds. */
  all(is) {
    const wanted = typeof is === "string" ? element => element.tag === is : is;
    return this.children.flatMap(child => [...(wanted(child) ? [child] : []), ...child.all(is)]);
  }
  querySelectorAll(tag) { return this.all(tag); }
  fire(name, event = {}) {
    for (const listener of this.listeners[name] || [])
      listener({ target: this, clientX: 0, clientY: 0, preventDefault() {}, ...event });
  }
}

/*
 * Opens a page that ergon wrote: runs its script on its own data. `names` are what of the script's
 * constants and functions the test wants; they come back beside byId, the data and the document.
 */
function openPage(path, names = []) {
  const html = fs.readFileSync(path, "utf8");
  const script = /<script>\n([^]*)<\/script>\n<\/body>/.exec(html)[1];
  const data = /<script type="application\/json" id="plan">([^]*?)<\/script>/.exec(html)[1];
  const elements = new Map();
  for (const [element, tag] of html.matchAll(/<([a-z0-9]+)[^>]*\bid="[^>]*>/g)) {
    const node = new Element(tag);
    node.hidden = /\shidden\b/.test(element);
    elements.set(/\bid="([^"]+)"/.exec(element)[1], node);
  }
  elements.get("plan").textContent = data;
  const body = new Element("body"), windowListeners = new Element("window");
  for (const [id, element] of elements) if (id !== "plan") body.append(element);
  const document = {
    title: "", documentElement: new Element("html"),
    getElementById: id => elements.get(id) || null,
    createElement: tag => new Element(tag),
    createElementNS: (space, tag) => new Element(tag),
  };
  const context = vm.createContext({
    document, innerWidth: 1000, innerHeight: 800, devicePixelRatio: 1, console,
    getComputedStyle: () => ({ getPropertyValue: () => " #123456" }),
    matchMedia: () => ({ addEventListener() {} }),
    addEventListener: (name, listener) => windowListeners.addEventListener(name, listener),
    ResizeObserver: class { observe() {} },
    /* No answer ever comes: a test gives a page what it would have got. */
    fetch: () => new Promise(() => {}), setTimeout: () => 0, AbortSignal: { timeout: () => null },
  });
  const wanted = vm.runInContext(`${script}\n({ ${names.join(", ")} });`, context, { filename: path });
  return { ...wanted, data: JSON.parse(data), document, body, window: windowListeners, byId: id => {
    if (!elements.has(id)) throw new Error(`${path} has no element with the id ${id}`);
    return elements.get(id);
  } };
}

module.exports = { openPage, Element };
