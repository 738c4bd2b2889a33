/*
 * What every page that ergon writes must keep, for people who see it narrow, dark, on paper, or not
 * at all: rules like those of axe-core. This script runs inside the page; each rule looks at the
 * page as it is laid out now and returns its faults as sentences. `BREAKS` are ways to break a page,
 * one for each rule, with which the test shows that the rule can fail.
 */
"use strict";
const pageRules = (() => {
  const TEXT_CONTRAST = 4.5, LARGE_CONTRAST = 3, GRAPHIC_CONTRAST = 3, TARGET_PX = 24;
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const styleOf = element => getComputedStyle(element);
  const boxOf = element => element.getBoundingClientRect();
  const short = text => (text.length > 60 ? `${text.slice(0, 57)}...` : text);
  const nameOfTag = element => {
    const id = element.id ? `#${element.id}` : "", kind = element.getAttribute("class");
    return `<${element.tagName.toLowerCase()}${id}${kind ? `.${kind.trim().replace(/\s+/g, ".")}` : ""}> in #${(element.parentElement && element.parentElement.closest("[id]") || {}).id || ""}`;
  };
  const isShown = element => element.checkVisibility({ visibilityProperty: true, opacityProperty: true }) && boxOf(element).width > 0 && boxOf(element).height > 0;
  /* Shown to readers of a screen only by their ears: clipped to nothing. */
  const isUnseen = element => Boolean(element.closest(".unseen")) || /inset\(50%/.test(styleOf(element).clipPath) ||
    Boolean(element.parentElement && element.parentElement !== document.body && isUnseen(element.parentElement));
  const isHidden = element => Boolean(element.closest("[aria-hidden=true]"));
  const textOf = ids => ids.split(/\s+/).map(id => (document.getElementById(id) || { textContent: "" }).textContent).join(" ").trim();
  function accessibleName(element) {
    if (element.hasAttribute("aria-labelledby")) return textOf(element.getAttribute("aria-labelledby"));
    if (element.hasAttribute("aria-label")) return element.getAttribute("aria-label").trim();
    const title = all("title", element)[0];
    if (element instanceof SVGElement) return title ? title.textContent.trim() : "";
    if (element.labels && element.labels.length) {
      /* A label around a control says more than the control's own text. */
      const copy = element.labels[0].cloneNode(true);
      all("select, input, button", copy).forEach(control => control.remove());
      return copy.textContent.trim();
    }
    if (/^(select|input|canvas)$/i.test(element.tagName)) return (element.getAttribute("alt") || element.getAttribute("title") || "").trim();
    return element.textContent.trim();
  }

  /* ---- colours ---- */
  const painter = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
  const known = new Map();
  function colour(text) { /* any colour of CSS as [r, g, b, a], a from 0 to 1 */
    if (!known.has(text)) {
      painter.clearRect(0, 0, 1, 1);
      painter.fillStyle = "#000";
      painter.fillStyle = text;
      painter.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = painter.getImageData(0, 0, 1, 1).data;
      known.set(text, [r, g, b, a / 255]);
    }
    return known.get(text);
  }
  const over = ([r, g, b, a], [r2, g2, b2]) => [r * a + r2 * (1 - a), g * a + g2 * (1 - a), b * a + b2 * (1 - a), 1];
  const luminance = rgb => rgb.slice(0, 3).map(v => v / 255).map(v => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const contrast = (a, b) => {
    const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x);
    return (high + 0.05) / (low + 0.05);
  };
  const faded = (rgba, element) => { /* with the opacity of the element and of those around it */
    let opacity = 1;
    for (let e = element; e; e = e.parentElement) opacity *= Number(styleOf(e).opacity);
    return [...rgba.slice(0, 3), rgba[3] * opacity];
  };
  /* What lies behind an element: the backgrounds of those around it, put over each other. */
  function ground(element, own) {
    const layers = [];
    for (let e = own ? element : element.parentElement; e; e = e.parentElement) {
      const background = colour(styleOf(e).backgroundColor);
      if (background[3] > 0) layers.push(background);
      if (background[3] === 1) break;
    }
    return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255, 1]);
  }
  const inPlots = "svg circle, svg path, svg rect, svg polygon, svg polyline, svg line";
  const fillOf = shape => colour(styleOf(shape).fill === "none" || /^url/.test(styleOf(shape).fill) ? "transparent" : styleOf(shape).fill);
  /* The filled shape of a chart under a text of it, if there is one. */
  function shapesOf(svg, known) {
    if (!known.has(svg))
      known.set(svg, all("rect, polygon, circle", svg).filter(shape => !shape.closest("clipPath, defs") && fillOf(shape)[3] > 0.5)
        .map(shape => ({ shape, box: boxOf(shape) })));
    return known.get(svg);
  }
  function groundOfChartText(text, known) {
    const svg = text.ownerSVGElement, box = boxOf(text), x = box.left + box.width / 2, y = box.top + box.height / 2;
    const below = shapesOf(svg, known).filter(({ shape, box }) => box.left <= x && x <= box.right && box.top <= y && y <= box.bottom &&
      shape.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_FOLLOWING).pop();
    return below ? over(fillOf(below.shape), ground(svg, true)) : ground(svg, true);
  }

  /* Elements with text of their own that can be seen. */
  function texts() {
    const found = new Set(), walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const element = node.parentElement;
      if (node.data.trim() && !element.closest("script, style, noscript, option, title, desc") && isShown(element) && !isUnseen(element)) found.add(element);
    }
    return [...found];
  }
  /* The part of a page that an element may fill: up to a box that scrolls, otherwise the section. */
  const scrolls = element => /auto|scroll/.test(styleOf(element).overflowX + styleOf(element).overflowY);
  function scrollBox(element) {
    for (let e = element.parentElement; e; e = e.parentElement) if (scrolls(e)) return e;
    return null;
  }

  const FOCUSABLE = "a[href], button:not(:disabled), select:not(:disabled), input:not(:disabled), textarea, summary, [tabindex]:not([tabindex='-1'])";
  const focusable = () => all(FOCUSABLE).filter(isShown);

  const RULES = {
    "the document has a language and a title"() {
      const faults = [], language = document.documentElement.lang;
      if (!/^[a-z]{2,3}(-|$)/.test(language)) faults.push(`the language is "${language}"`);
      if (document.title.trim().length < 8) faults.push(`the title is "${document.title}"`);
      return faults;
    },

    "headings have one h1 and leave out no level"() {
      const headings = all("h1, h2, h3, h4, h5, h6").filter(isShown), faults = [];
      const first = headings.filter(heading => heading.tagName === "H1").length;
      if (first !== 1) faults.push(`there are ${first} h1`);
      headings.reduce((before, heading) => {
        const level = Number(heading.tagName[1]);
        if (level > before + 1) faults.push(`h${level} "${short(heading.textContent)}" follows h${before}`);
        if (!heading.textContent.trim()) faults.push(`an h${level} is empty`);
        return level;
      }, 0);
      return faults;
    },

    "all text lies in a landmark, and one of them is main"() {
      const count = all("main, [role=main]").length, faults = count === 1 ? [] : [`there are ${count} main`];
      for (const element of texts())
        if (!element.closest("main, header, nav, footer, aside")) faults.push(`outside: "${short(element.textContent.trim())}"`);
      return faults;
    },

    "identifiers are unique and references have targets"() {
      const seen = new Set(), faults = [];
      for (const element of all("[id]")) {
        if (seen.has(element.id)) faults.push(`two elements are #${element.id}`);
        seen.add(element.id);
      }
      for (const attribute of ["aria-labelledby", "aria-describedby", "aria-controls", "for"])
        for (const element of all(`[${attribute}]`))
          for (const id of element.getAttribute(attribute).split(/\s+/))
            if (!seen.has(id)) faults.push(`${attribute} of ${nameOfTag(element)} names #${id}, which is not there`);
      for (const link of all("a[href^='#']"))
        if (link.hash.length > 1 && !seen.has(link.hash.slice(1))) faults.push(`a link leads to ${link.hash}, which is not there`);
      return faults;
    },

    "pictures have a role and a name"() {
      const pictures = all("img, svg, canvas, [role=img], [role=application]");
      return pictures.filter(picture => isShown(picture) && !isHidden(picture) && !(picture.parentElement && picture.parentElement.closest("[role=img]"))).flatMap(picture => {
        const faults = [], role = picture.getAttribute("role");
        if (picture.tagName !== "IMG" && !/^(img|application|group)$/.test(role || "")) faults.push(`${nameOfTag(picture)} has no role`);
        if (accessibleName(picture).length < 3) faults.push(`${nameOfTag(picture)} has no name`);
        return faults;
      });
    },

    "tables have a caption, and header cells with a scope"() {
      return all("table").filter(isShown).flatMap(table => {
        const faults = [], of = nameOfTag(table);
        if (!table.caption || !table.caption.textContent.trim()) faults.push(`${of} has no caption`);
        const heads = all("th", table);
        if (!heads.some(head => head.scope === "col") && !heads.some(head => head.scope === "row")) faults.push(`${of} has no header cells`);
        for (const head of heads) {
          if (!/^(col|row|colgroup|rowgroup)$/.test(head.scope)) faults.push(`a header cell of ${of} has no scope: "${short(head.textContent)}"`);
          if (!head.textContent.trim() && !accessibleName(head)) faults.push(`a header cell of ${of} is empty`);
        }
        return faults;
      });
    },

    "controls have a name"() {
      return focusable().filter(element => accessibleName(element).length < 1).map(element => `${nameOfTag(element)} has no name`);
    },

    "what a pointer reaches a key reaches too"() {
      const faults = [];
      for (const element of all("[tabindex]"))
        if (element.tabIndex > 0) faults.push(`${nameOfTag(element)} has tabindex ${element.tabIndex}, out of order`);
      for (const element of all("[aria-hidden=true] *, [aria-hidden=true]"))
        if (element.matches(FOCUSABLE)) faults.push(`${nameOfTag(element)} takes the focus, but is hidden from screen readers`);
      /* What shows a tip is, or lies in, something that takes the focus. */
      for (const element of window.pointedAt || [])
        if (element.isConnected && isShown(element) && !element.closest(FOCUSABLE) && !element.querySelector(FOCUSABLE))
          faults.push(`${nameOfTag(element)} answers to a pointer, but takes no focus`);
      return faults;
    },

    "boxes that scroll take the focus and have a name"() {
      return all("body *").filter(element => isShown(element) && !isUnseen(element) && scrolls(element) &&
        (element.scrollWidth > element.clientWidth + 1 || element.scrollHeight > element.clientHeight + 1) && !/^(SELECT|TEXTAREA)$/.test(element.tagName))
        .flatMap(element => {
          const faults = [];
          if (element.tabIndex < 0 || !element.hasAttribute("tabindex")) faults.push(`${nameOfTag(element)} scrolls, but takes no focus`);
          if (!element.hasAttribute("aria-label") && !element.hasAttribute("aria-labelledby")) faults.push(`${nameOfTag(element)} scrolls, but has no name`);
          if (!element.hasAttribute("role") && !/^(SECTION|ASIDE|NAV)$/.test(element.tagName)) faults.push(`${nameOfTag(element)} scrolls, but has no role`);
          return faults;
        });
    },

    "controls are large enough to be touched"() {
      return focusable().filter(element => /^(BUTTON|SELECT|INPUT)$/.test(element.tagName)).filter(element =>
        Math.min(boxOf(element).width, boxOf(element).height) < TARGET_PX - 0.5 && !(element.type === "range" && element.closest("label") && boxOf(element.closest("label")).height >= TARGET_PX))
        .map(element => `${nameOfTag(element)} is ${Math.round(boxOf(element).width)} x ${Math.round(boxOf(element).height)} px`);
    },

    "text stands out from its ground"() {
      const known = new Map();
      return texts().filter(element => !element.closest(":disabled")).flatMap(element => {
        const style = styleOf(element), inChart = element instanceof SVGElement, size = parseFloat(style.fontSize);
        const behind = inChart ? groundOfChartText(element, known) : ground(element, true);
        const ink = over(faded(colour(inChart ? style.fill : style.color), element), behind);
        const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700), reached = contrast(ink, behind);
        return reached + 0.005 < (large ? LARGE_CONTRAST : TEXT_CONTRAST)
          ? [`${reached.toFixed(2)}: "${short(element.textContent.trim())}" in ${nameOfTag(element)}`] : [];
      });
    },

    "marks stand out from their ground"() {
      const faults = new Set(), check = (element, colours, what) => {
        const behind = ground(element instanceof SVGElement ? element.ownerSVGElement : element, element instanceof SVGElement);
        const best = Math.max(0, ...colours.filter(one => one[3] > 0.05).map(one => contrast(over(one, behind), behind)));
        if (best + 0.005 < GRAPHIC_CONTRAST) faults.add(`${best.toFixed(2)}: ${what}`);
      };
      for (const shape of all(inPlots)) {
        /* Lines of a grid, faint companions of a line and colours of a scale do not carry meaning alone. */
        if (shape.closest(".grid, .band, .faint, .cell, .unknown, svg .scale, defs, clipPath") || !isShown(shape)) continue;
        const style = styleOf(shape), stroke = style.stroke === "none" ? "transparent" : style.stroke;
        const colours = [faded(fillOf(shape), shape), faded(colour(/^url/.test(stroke) ? "transparent" : stroke), shape)];
        if (colours.every(one => one[3] === 0)) continue;
        check(shape, colours, `${nameOfTag(shape)} ${style.fill} ${stroke}`);
      }
      for (const part of all(".swatch, .bar i, .squares i, .meter i")) {
        if (!isShown(part)) continue;
        const style = styleOf(part);
        const edge = parseFloat(style.borderTopWidth) > 0 && !/none|hidden/.test(style.borderTopStyle) ? style.borderTopColor : "transparent";
        const line = parseFloat(style.outlineWidth) > 0 && style.outlineStyle !== "none" ? style.outlineColor : "transparent";
        check(part, [colour(style.backgroundColor), colour(edge), colour(line)].map(one => faded(one, part)), `${nameOfTag(part)} ${style.backgroundColor}`);
      }
      return [...faults];
    },

    "entries of a legend differ by more than colour"() {
      return all(".legend").filter(isShown).flatMap(legend => {
        const entries = [...legend.children], faults = [], seen = new Map();
        for (const entry of entries) {
          const icon = entry.firstElementChild;
          if (!icon) continue;
          const shape = icon.outerHTML.replace(/fill="(none|var\(--card\))"/g, "hollow").replace(/(--[a-z]+|background(-color)?|fill|stroke)\s*[:=]\s*"?[^;">]*("|;|(?=[;">]))/g, "");
          if (seen.has(shape)) faults.push(`"${short(entry.textContent)}" and "${short(seen.get(shape))}" differ by their colour alone`);
          seen.set(shape, entry.textContent);
        }
        return faults;
      });
    },

    "links are underlined"() {
      return all("a[href]").filter(link => isShown(link) && !/underline/.test(styleOf(link).textDecorationLine)).map(link => `"${link.textContent}"`);
    },

    "nothing is wider than the page or leaves its box"() {
      const faults = [], root = document.documentElement, width = root.clientWidth;
      if (root.scrollWidth > width) faults.push(`the page is ${root.scrollWidth} px wide in a window of ${width}`);
      for (const element of texts().filter(one => !(one instanceof SVGElement) && !scrollBox(one))) {
        const around = element.closest("section, .tile, header, main"), range = document.createRange();
        range.selectNodeContents(element);
        const box = range.getBoundingClientRect(), most = around ? boxOf(around).right - parseFloat(styleOf(around).paddingRight) : width;
        const clipped = /hidden|clip/.test(styleOf(element).overflowX);
        if (box.right > most + 1.5 && !clipped) faults.push(`"${short(element.textContent.trim())}" ends ${Math.round(box.right - most)} px beyond its box`);
      }
      for (const picture of all("svg, canvas").filter(one => isShown(one) && !scrollBox(one)))
        if (boxOf(picture).right > width + 0.5) faults.push(`${nameOfTag(picture)} ends ${Math.round(boxOf(picture).right - width)} px beyond the page`);
      return faults;
    },

    "texts of a chart lie inside it and not over each other"() {
      return all("svg").filter(svg => isShown(svg) && !isUnseen(svg)).flatMap(svg => {
        const faults = [], frame = boxOf(svg), boxes = all("text", svg).filter(isShown).map(text => ({ text: text.textContent, box: boxOf(text) }));
        for (const { text, box } of boxes)
          if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 2 || box.bottom > frame.bottom + 2)
            faults.push(`"${short(text)}" is cut off in ${nameOfTag(svg)}`);
        boxes.forEach((a, i) => boxes.slice(i + 1).forEach(b => {
          const across = Math.min(a.box.right, b.box.right) - Math.max(a.box.left, b.box.left);
          const down = Math.min(a.box.bottom, b.box.bottom) - Math.max(a.box.top, b.box.top);
          if (across > 1 && down > 0.3 * Math.min(a.box.height, b.box.height)) faults.push(`"${short(a.text)}" lies over "${short(b.text)}" in ${nameOfTag(svg)}`);
        }));
        return faults;
      });
    },

    "words of tables are not broken"() {
      return all("th, td").filter(cell => isShown(cell) && !isUnseen(cell)).flatMap(cell => {
        const range = document.createRange(), walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT), faults = [];
        for (let node = walker.nextNode(); node; node = walker.nextNode()) {
          if (!node.data.trim() || !isShown(node.parentElement) || isUnseen(node.parentElement) || node.parentElement.tagName === "CODE") continue;
          range.selectNodeContents(node);
          /* A line may end at a space, and after a hyphen or a slash. */
          const lines = new Set([...range.getClientRects()].map(box => Math.round(box.top))).size, places = node.data.trim().split(/[ \n]+|(?<=[-\u2013/])/).length;
          if (lines > places) faults.push(`"${short(node.data.trim())}" takes ${lines} lines in ${nameOfTag(cell)}`);
        }
        return faults;
      });
    },

    "changes are said by a live region"() {
      if (!all("script").some(script => !script.type)) return []; /* nothing changes */
      const regions = all("[role=status], [aria-live=polite], [role=log]");
      return regions.length ? [] : ["the page has none"];
    },

    "nothing moves for those who want that"() {
      if (!matchMedia("(prefers-reduced-motion: reduce)").matches) return [];
      return all("*").filter(element => {
        const style = styleOf(element), lasts = list => list.split(",").some(time => parseFloat(time) > 0.01);
        return (style.animationName !== "none" && lasts(style.animationDuration)) || lasts(style.transitionDuration) || style.scrollBehavior === "smooth";
      }).map(element => `${nameOfTag(element)} moves`);
    },

    "paper is white and shows all"() {
      if (!matchMedia("print").matches) return [];
      const faults = [];
      for (const element of [document.body, ...all("section, .tile")])
        if (isShown(element) && luminance(ground(element, true)) < 0.99) faults.push(`${nameOfTag(element)} is not white`);
      for (const element of all("body *").filter(one => isShown(one) && !isUnseen(one) && scrolls(one)))
        if (element.scrollWidth > element.clientWidth + 1 || element.scrollHeight > element.clientHeight + 1) faults.push(`${nameOfTag(element)} is cut off by ` +
          `${Math.max(element.scrollWidth - element.clientWidth, element.scrollHeight - element.clientHeight)} px`);
      return faults;
    },

    "the page says in words what it shows and what comes next"() {
      const words = id => ((document.getElementById(id) || {}).textContent || "").trim(), faults = [];
      if (!/\d/.test(words("headline")) || !/[.!]$/.test(words("headline"))) faults.push(`the heading is no sentence with a number: "${words("headline")}"`);
      if (words("next").length < 30) faults.push("nothing says what to do next");
      return faults;
    },
  };

  /* Breaks a page, so that the rule of the same name finds a fault. */
  const section = () => all("main section").find(isShown), add = (tag, text, attributes = {}) => {
    const element = document.createElement(tag);
    element.textContent = text;
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    section().append(element);
    return element;
  };
  const BREAKS = {
    "the document has a language and a title"() { document.documentElement.lang = ""; },
    "headings have one h1 and leave out no level"() { add("h4", "A level is missing"); },
    "all text lies in a landmark, and one of them is main"() { document.body.append(add("p", "Outside")); },
    "identifiers are unique and references have targets"() { add("p", "twice", { id: "headline" }); },
    "pictures have a role and a name"() { all("svg[aria-label]")[0].removeAttribute("aria-label"); },
    "tables have a caption, and header cells with a scope"() { all("thead th")[0].removeAttribute("scope"); },
    "controls have a name"() { add("button", ""); all("button:last-child", section()).pop().style.cssText = "width:40px;height:40px"; },
    "what a pointer reaches a key reaches too"() { (window.pointedAt = window.pointedAt || []).push(add("p", "Point at me")); },
    "boxes that scroll take the focus and have a name"() { add("div", "a word ".repeat(100), { style: "overflow:auto;width:80px;white-space:nowrap" }); },
    "controls are large enough to be touched"() { add("button", "x", { style: "min-height:0;height:10px;padding:0" }); },
    "text stands out from its ground"() { add("p", "Hardly seen", { style: "color:#888888;background:#777777" }); },
    "marks stand out from their ground"() { add("i", "", { class: "swatch", style: "display:block;border:0;background:var(--card)" }); },
    "entries of a legend differ by more than colour"() {
      add("div", "", { class: "legend" }).innerHTML = '<span><i class="swatch" style="background:#a00"></i>one</span><span><i class="swatch" style="background:#060"></i>two</span>';
    },
    "links are underlined"() { add("a", "a link", { href: "#headline", style: "text-decoration:none" }); },
    "nothing is wider than the page or leaves its box"() { add("p", "w".repeat(900)); },
    "texts of a chart lie inside it and not over each other"() {
      const svg = all("svg[role]").find(isShown), text = all("text", svg)[0].cloneNode(true);
      text.textContent = "the same place";
      svg.append(text, text.cloneNode(true));
    },
    "words of tables are not broken"() { all("td").find(isShown).innerHTML = '<div style="width:1.5em;overflow-wrap:anywhere">indivisible</div>'; },
    "changes are said by a live region"() {
      all("[role=status], [aria-live], [role=log]").forEach(region => { region.removeAttribute("role"); region.removeAttribute("aria-live"); });
    },
    "nothing moves for those who want that"() { add("p", "It moves", { style: "transition:color 2s" }); },
    "paper is white and shows all"() { section().style.background = "#ddd"; },
    "the page says in words what it shows and what comes next"() { document.getElementById("headline").textContent = "Report"; },
  };
  return { RULES, BREAKS, focusable, ground, colour, contrast, nameOfTag };
})();
