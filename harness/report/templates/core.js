"use strict";
// What the other scripts share: the embedded data, elements made of text (never of markup), numbers, and the router.
const Report = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const at = Object.fromEntries(data.runs.columns.map((name, index) => [name, index]));
  const textual = new Set(["id", "system", "dataset", "model", "sampler", "memory", "device", "disk", "host", "stages",
    "experiment", "accelerator", "status", "verdict", "class", "part", "kind"]);
  // A row as an object: text columns hold numbers of `texts`.
  const runs = data.runs.rows.map((row) => Object.fromEntries(
    data.runs.columns.map((name, index) => [name, textual.has(name) ? data.runs.texts[row[index]] : row[index]])));

  // An element from a tag, properties and children; strings become text nodes, so no value is ever read as markup.
  function el(tag, properties, ...children) {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(properties || {})) {
      if (value === undefined || value === null || value === false) continue;
      if (key === "class") node.className = value;
      else if (key === "style") Object.assign(node.style, value);
      else if (key === "on") for (const [name, listener] of Object.entries(value)) node.addEventListener(name, listener);
      else node.setAttribute(key, value === true ? "" : value);
    }
    for (const child of children.flat(Infinity)) {
      if (child !== null && child !== undefined && child !== false) node.append(child instanceof Node ? child : String(child));
    }
    return node;
  }

  // Plotly reads some tags in text; this keeps every value literal.
  const literal = (value) => String(value).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

  function number(value, digits = 3) {
    if (value === null || value === undefined || Number.isNaN(value)) return "–";
    if (typeof value !== "number") return String(value);
    if (Number.isInteger(value)) return value.toLocaleString("en");
    const size = Math.abs(value);
    return size >= 1000 ? Math.round(value).toLocaleString("en") : size >= 1e-4 || size === 0 ? String(Number(value.toPrecision(digits))) : value.toExponential(1);
  }

  function bytes(value) {
    if (value === null || value === undefined) return "–";
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = 0;
    while (Math.abs(value) >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
    return `${unit ? value.toFixed(1) : value} ${units[unit]}`;
  }

  // `+67108864` as what it means; what is no plain number of bytes stays as it was asked for.
  function memory(text) {
    const found = /^(\+?)(\d+)$/.exec(text);
    return found ? `${found[1] ? "floor + " : "cap "}${bytes(Number(found[2]))}` : text;
  }

  function table(header, rows, label) {
    const cell = (value, tag) => value instanceof Element && value.tagName.match(/^T[DH]$/) ? value : el(tag, {}, value);
    return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
      el("table", {}, el("thead", {}, el("tr", {}, header.map((name, index) => el("th", { scope: "col", class: rows.length && rows[0][index] instanceof HTMLTableCellElement ? rows[0][index].className : "" }, name)))),
        el("tbody", {}, rows.map((row) => el("tr", {}, row.map((value) => cell(value, "td")))))));
  }

  const badge = (text) => {
    const tone = { VALID: "good", ok: "good", kept: "good", CAVEATS: "fair", SPOILT: "fair", INVALID: "bad", failed: "bad", bent: "bad", oom: "fair", timeout: "fair" }[text] || "";
    return el("span", { class: `badge ${tone}` }, text);
  };

  const spare = { color: "#999999", symbol: "x" };
  const look = (system) => Object.hasOwn(data.looks, system) ? data.looks[system] : spare;
  const swatch = (system) => el("i", { class: "swatch", style: { background: look(system).color } });
  const order = (systems) => {
    const known = Object.keys(data.looks);
    const rank = (name) => (known.indexOf(name) + 1) || known.length + 1;
    return [...new Set(systems)].sort((a, b) => rank(a) - rank(b) || (a < b ? -1 : 1));
  };

  async function unpack(text) {
    const raw = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }

  // Scripts in the folder beside the page: the plotting library, and one for each run. A page of a file may load scripts and read nothing else.
  const { nonce } = document.currentScript;
  const loading = new Map();
  function load(name) {
    if (!loading.has(name)) {
      loading.set(name, new Promise((done, failed) => {
        document.head.append(el("script", { src: `${data.files}/${name}`, nonce, on: { load: done, error: failed } }));
      }));
    }
    return loading.get(name);
  }
  const received = new Map();
  const receive = (id, text) => received.set(id, text);
  // Details and timelines of a run; null where its script is missing.
  async function detailsOf(id) {
    const there = await load(`runs/${encodeURIComponent(id)}.js`).then(() => received.has(id), () => false);
    return there ? unpack(received.get(id)) : null;
  }

  const shade = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const layout = (more) => ({
    font: { family: "system-ui, 'DejaVu Sans', sans-serif", size: 12, color: shade("ink") }, paper_bgcolor: shade("paper"),
    plot_bgcolor: shade("paper"), hovermode: "closest", margin: { l: 62, r: 14, t: 30, b: 46 }, autosize: true,
    legend: { orientation: "h", y: 1, yanchor: "bottom", x: 0 }, ...more,
  });
  const axis = (more) => ({ gridcolor: shade("line"), zeroline: false, linecolor: "#9aa5b1", ticks: "outside", automargin: true, ...more });
  async function plot(node, traces, shape) {
    const there = await load("plotly.min.js").then(() => true, () => false);
    if (!there) node.textContent = `The plotting library is missing: the folder ${data.files} has to lie beside this page.`;
    if (!there || !node.isConnected) return null;
    return Plotly.react(node, traces, layout(shape), { displaylogo: false, responsive: true, modeBarButtonsToRemove: ["select2d", "lasso2d"], displayModeBar: window.innerWidth > 640 ? "hover" : false });
  }

  // `#run/ID` shows the page of a run in place of the report; every other address is a place in the report.
  const report = document.getElementById("report");
  const page = document.getElementById("run");
  let left = 0;
  function route() {
    // The report of one run opens with this run's own page.
    if (!location.hash && runs.length === 1) location.replace(`#run/${encodeURIComponent(runs[0].id)}`);
    const hash = decodeURIComponent(location.hash.slice(1));
    if (hash.startsWith("run/")) {
      if (!report.hidden) left = window.scrollY;
      report.hidden = true;
      page.hidden = false;
      Report.showRun(hash.slice(4), page);
      window.scrollTo(0, 0);
    } else if (!page.hidden) {
      page.hidden = true;
      report.hidden = false;
      page.replaceChildren();
      document.title = data.title;
      const target = hash && document.getElementById(hash);
      if (target) target.scrollIntoView(); else window.scrollTo(0, left);
      window.dispatchEvent(new Event("resize"));
    }
    const inside = page.hidden && hash && document.getElementById(hash);
    const folds = [];
    for (let fold = inside && inside.closest("details"); fold; fold = fold.parentElement.closest("details")) folds.push(fold);
    for (const fold of folds) fold.open = true;
    if (folds.length) inside.scrollIntoView();
    const section = hash.startsWith("run/") ? "runs" : hash.startsWith("figure-") ? "gallery" : hash.startsWith("rule-") ? "rules" : hash;
    for (const link of document.querySelectorAll(".bar nav a:not(.brand)")) {
      if (link.getAttribute("href") === `#${section}`) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }

  return { data, runs, at, el, literal, number, bytes, memory, table, badge, look, swatch, order, receive, detailsOf, plot, axis, shade, route };
})();
