"use strict";
// Charts and table of the runs, filtered. Runs of two hosts or devices are drawn in panels of their own, never averaged.
(() => {
  const { data, runs, el, literal, number, memory, badge, look, swatch, order, plot, axis } = Report;
  const form = document.getElementById("run-filters");
  form.addEventListener("submit", (event) => event.preventDefault());
  const PANELS = 4;
  const PAGE = 100;
  const BARS = 40;
  const FILTERS = ["dataset", "model", "memory", "device", "disk", "host"];
  const MEASURES = {
    epoch_s: "epoch time (s)", prep_s: "preprocessing (s)", device_mb: "device reads an epoch (MB)", amplification: "read amplification",
    au: "accelerator utilisation (AU)", se: "storage efficiency (SE)", engine: "engine efficiency", distance: "distance to the limit",
    peak_mib: "peak memory (MiB)", working_set: "working set / memory",
  };
  const ACROSS = {
    system: "system", memory_bytes: "memory asked for (MiB)", dim: "feature dimension", batch: "mini-batch size", ranks: "processes",
    working_set: "working set / memory", device_mb: "device reads an epoch (MB)", dataset: "dataset", disk: "SSD",
  };
  // Measures of an epoch, whose axis names the part of it that the runs train.
  const OF_EPOCH = new Set(["epoch_s", "device_mb"]);
  const WHOLE = "all mini-batches";
  function partOf(list) {
    const parts = [...new Set(list.map((run) => run.part))];
    if (parts.length > 1) return "<br>parts of an epoch that differ, see the table";
    return parts.length && parts[0] !== WHOLE ? `<br>${literal(parts[0])}` : "";
  }
  const LINEAR = new Set(["au", "se", "engine", "distance"]);

  function options(select, entries) { select.replaceChildren(...entries.map(([value, text]) => el("option", { value }, text))); }
  for (const name of FILTERS) {
    const values = [...new Set(runs.map((run) => run[name]))].sort();
    options(form.elements[name], [["", `all (${values.length})`], ...values.map((value) => [value, name === "memory" ? memory(value) : value])]);
  }
  options(form.elements.y, Object.entries(MEASURES));
  options(form.elements.x, Object.entries(ACROSS));
  const chips = document.getElementById("system-chips");
  chips.append(...order(runs.map((run) => run.system)).map((system) => el("label", {},
    el("input", { type: "checkbox", name: "system", value: system, checked: true }), swatch(system), system)));
  for (const name of FILTERS) if (data.first && Object.hasOwn(data.first, name)) form.elements[name].value = data.first[name];

  function chosen() {
    const systems = new Set([...form.querySelectorAll("input[name=system]:checked")].map((box) => box.value));
    return runs.filter((run) => systems.has(run.system) && FILTERS.every((name) => !form.elements[name].value || run[name] === form.elements[name].value));
  }

  const tally = (list, key) => Object.entries(list.reduce((found, run) => { found[run[key]] = (found[run[key]] || 0) + 1; return found; }, Object.create(null)))
    .sort().map(([name, count]) => `${count} ${name}`).join(", ");

  // Of each panel: all points of one host and one device (of one version, where it is emulated).
  function panelsOf(list) {
    const found = new Map();
    for (const run of list) {
      const key = JSON.stringify([run.host, run.device, run.accelerator]);
      if (!found.has(key)) found.set(key, []);
      found.get(key).push(run);
    }
    return [...found.entries()].sort((a, b) => b[1].length - a[1].length).map(([key, own]) => ({ place: JSON.parse(key), own }));
  }

  const across = (run, x) => x === "memory_bytes" ? (run.memory_bytes === null ? null : run.memory_bytes / 2 ** 20) : run[x];

  function drawRuns(list) {
    const y = form.elements.y.value;
    const x = form.elements.x.value;
    const scale = form.elements.scale.value === "log" && !LINEAR.has(y) ? "log" : "linear";
    const words = x === "system" || x === "dataset" || x === "disk";
    const valid = list.filter((run) => ["VALID", "CAVEATS"].includes(run.verdict) && run.status === "ok" && run[y] !== null && across(run, x) !== null && (scale !== "log" || run[y] > 0));
    const panels = panelsOf(valid);
    const node = document.getElementById("chart-runs");
    const traces = [];
    const annotations = [];
    const shape = { grid: { rows: Math.max(1, Math.min(panels.length, PANELS)), columns: 1, pattern: "independent", ygap: 0.35 }, annotations };
    const named = new Set();
    panels.slice(0, PANELS).forEach(({ place, own }, index) => {
      const suffix = index ? String(index + 1) : "";
      shape[`yaxis${suffix}`] = axis({ type: scale, title: { text: MEASURES[y] + (OF_EPOCH.has(y) ? partOf(own) : "") }, rangemode: scale === "linear" ? "tozero" : undefined, exponentformat: "none", ...(scale === "log" ? decades(own.flatMap((run) => [run[y], y === "epoch_s" ? run.high : run[y], y === "epoch_s" ? run.low : run[y]])) : {}) });
      const category = words ? { type: "category", categoryorder: "array", categoryarray: (x === "system" ? order(own.map((run) => run.system)) : [...new Set(own.map((run) => run[x]))].sort()).map(literal) } : { type: x === "ranks" ? "linear" : "log", exponentformat: "none", tickvals: ticks(own.map((run) => across(run, x))), tickformat: "~r" };
      shape[`xaxis${suffix}`] = axis({ ...category, title: { text: index === Math.min(panels.length, PANELS) - 1 ? ACROSS[x] : "" } });
      if (panels.length > 1) annotations.push({ text: literal(`${place[1]} on host ${place[0]}`), showarrow: false, xref: `x${suffix} domain`, yref: `y${suffix} domain`, x: 0, y: 1, xanchor: "left", yanchor: "bottom", font: { size: 12 } });
      for (const system of order(own.map((run) => run.system))) {
        const mine = own.filter((run) => run.system === system);
        traces.push({
          type: "scatter", mode: "markers", name: literal(system), legendgroup: literal(system), showlegend: !named.has(system), xaxis: `x${suffix}`, yaxis: `y${suffix}`,
          x: mine.map((run) => words ? literal(run[x]) : across(run, x)), y: mine.map((run) => run[y]), customdata: mine.map((run) => run.id),
          marker: { color: look(system).color, symbol: look(system).symbol, size: 10, line: { color: Report.shade("ink"), width: 0.8 } },
          error_y: y === "epoch_s" ? { type: "data", symmetric: false, array: mine.map((run) => run.high - run.epoch_s), arrayminus: mine.map((run) => run.epoch_s - run.low), color: look(system).color, thickness: 1.2 } : undefined,
          hoverinfo: "text", hovertext: mine.map((run) => [`<b>${literal(run.system)}</b> ${number(run[y])}`, `${literal(run.dataset)}, ${literal(run.model)}, batch ${run.batch}`,
            `memory ${literal(memory(run.memory))}, ${literal(run.device)}`, `${run.class}, ${run.verdict}, ${run.samples} epochs`, "select for its page"].join("<br>")),
        });
        named.add(system);
      }
    });
    if (!panels.length) annotations.push({ text: "No run that counts fits these filters.", showarrow: false, xref: "paper", yref: "paper", x: 0.5, y: 0.5 });
    shape.height = 110 + 270 * Math.max(1, Math.min(panels.length, PANELS));
    plot(node, traces, shape).then(() => {
      if (node.listening || !node.on) return;
      node.listening = true;
      node.on("plotly_click", (event) => { const id = event.points[0].customdata; if (id) location.hash = `#run/${encodeURIComponent(id)}`; });
    });
    return { valid, panels };
  }

  // Few values of a sweep are the ticks themselves.
  function ticks(values) { const own = [...new Set(values)].sort((a, b) => a - b); return own.length <= 8 ? own : undefined; }

  // 1, 2 and 5 of each power of ten on a log axis, as plain numbers.
  function decades(values) {
    const [low, high] = [Math.log10(Math.min(...values)), Math.log10(Math.max(...values))];
    const tickvals = [];
    for (let power = Math.floor(low) - 1; power <= Math.ceil(high) + 1; power += 1) for (const one of high - low > 3 ? [1] : high - low > 0.8 ? [1, 2, 5] : [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8]) tickvals.push(one * 10 ** power);
    const room = Math.max(0.12, (high - low) * 0.08);
    return { tickvals, ticktext: tickvals.map((value) => number(value)), range: [low - room, high + room] };
  }

  function drawStages(valid) {
    const node = document.getElementById("chart-stages");
    const own = valid.filter((run) => run.parts).slice(-BARS);
    const sorted = order(own.map((run) => run.system)).flatMap((system) => own.filter((run) => run.system === system));
    const names = data.runs.stages;
    // Runs of one system stand beside each other; a number tells them apart.
    const place = (run) => { const mates = sorted.filter((mate) => mate.system === run.system); return mates.length > 1 ? ` ${mates.indexOf(run) + 1}` : ""; };
    const label = (run) => literal(run.system) + place(run);
    const traces = names.map((stage, index) => ({
      type: "bar", name: literal(stage), x: sorted.map(label), y: sorted.map((run) => run.parts[index]), customdata: sorted.map((run) => run.id), marker: { color: data.stage_colors[stage] || "#b6bdc7", line: { color: Report.shade("ink"), width: 0.4 } },
      hoverinfo: "text", hovertext: sorted.map((run) => `<b>${literal(run.system)}</b> ${literal(stage)} ${number(run.parts[index])} s<br>${literal(run.dataset)}, memory ${literal(memory(run.memory))}`),
    })).filter((trace) => trace.y.some((value) => value));
    plot(node, traces, {
      barmode: "group", bargap: 0.25, height: 380, yaxis: axis({ title: { text: `open in each stage (s an epoch)${partOf(sorted)}` }, rangemode: "tozero" }), xaxis: axis({ type: "category" }),
      annotations: sorted.length ? [] : [{ text: "No run with stages fits these filters.", showarrow: false, xref: "paper", yref: "paper", x: 0.5, y: 0.5 }],
    });
  }

  // The first two columns fit a phone; names of 30 letters come last.
  const LISTED = [["system", "system"], ["epoch_s", "epoch s"], ["low", "low"], ["high", "high"], ["memory", "memory"], ["dataset", "dataset"], ["device", "device"], ["status", "status"], ["verdict", "verdict"],
    ["class", "class"], ["part", "epoch of"], ["prep_s", "prep. s"], ["amplification", "read ampl."], ["au", "AU"], ["se", "SE"], ["engine", "engine"], ["distance", "distance"], ["id", "run"]];
  const NUMBERS = new Set(["epoch_s", "low", "high", "prep_s", "amplification", "au", "se", "engine", "distance"]);
  const sorting = { key: "id", down: true };
  let shown = PAGE;
  function listRuns(list) {
    const body = document.getElementById("run-table").tBodies[0];
    const rank = (run) => run[sorting.key];
    const sign = sorting.down ? -1 : 1;
    const sorted = [...list].sort((a, b) => {
      const [p, q] = [rank(a), rank(b)];
      if (p === q) return 0;
      if (p === null) return 1;
      if (q === null) return -1;
      return p < q ? -sign : sign;
    });
    body.replaceChildren(...sorted.slice(0, shown).map((run) => el("tr", {}, LISTED.map(([key]) => {
      const page = `#run/${encodeURIComponent(run.id)}`;
      if (key === "system") return el("th", { scope: "row", class: "k" }, swatch(run.system), el("a", { href: page }, run.system));
      if (key === "id") return el("td", { class: "k" }, run.id);
      if (key === "verdict" || key === "status") return el("td", {}, badge(run[key]));
      if (key === "memory") return el("td", { class: "k" }, memory(run.memory));
      return typeof run[key] === "string" ? el("td", { class: "k" }, run[key]) : el("td", { class: "n" }, number(run[key]));
    }))));
    const more = document.getElementById("more-runs");
    more.hidden = sorted.length <= shown;
    more.textContent = `Show ${Math.min(PAGE, sorted.length - shown)} more of ${sorted.length}`;
  }

  function head() {
    document.getElementById("run-table").tHead.replaceChildren(el("tr", {}, LISTED.map(([key, name]) =>
      el("th", { scope: "col", class: NUMBERS.has(key) ? "n" : "k", "aria-sort": sorting.key === key ? (sorting.down ? "descending" : "ascending") : "none" },
        el("button", { type: "button", "data-key": key, on: { click: () => { sorting.down = sorting.key === key ? !sorting.down : false; sorting.key = key; head(); listRuns(chosen()); } } },
          name, sorting.key === key ? (sorting.down ? " ▾" : " ▴") : "")))));
  }

  function apply() {
    shown = PAGE;
    const list = chosen();
    const { valid, panels } = drawRuns(list);
    drawStages(valid);
    listRuns(list);
    const parts = [`${list.length} of ${runs.length} runs`];
    if (list.length) parts.push(tally(list, "status"), tally(list, "verdict"));
    if (valid.length) parts.push(`drawn ${valid.length}: ${tally(valid, "class")}`);
    if (panels.length > PANELS) parts.push(`${panels.length - PANELS} more combinations of host and device are not drawn: choose one`);
    document.getElementById("run-count").textContent = `${parts.join("; ")}. Invalid, spoilt and failed runs are listed, never drawn.`;
  }
  form.addEventListener("input", apply);
  document.getElementById("show-all").addEventListener("click", () => {
    for (const name of FILTERS) form.elements[name].value = "";
    for (const box of form.querySelectorAll("input[name=system]")) box.checked = true;
    apply();
  });
  document.getElementById("more-runs").addEventListener("click", () => { shown += PAGE; listRuns(chosen()); });
  head();
  apply();
})();
