"use strict";
// The page of one run, built from its script in the folder beside the page when its address is opened.
Report.showRun = async (id, page) => {
  const { data, runs, el, literal, number, bytes, table, badge, look, swatch, plot, axis, shade, detailsOf } = Report;
  const run = runs.find((candidate) => candidate.id === id);
  const back = el("p", {}, el("a", { href: "#" }, "← back to the report"));
  if (!run) {
    page.replaceChildren(el("section", {}, back, el("h1", { tabindex: "-1" }, "No such run"), el("p", {}, `This report holds no run ${id}.`)));
    page.querySelector("h1").focus();
    return;
  }
  const opened = (Report.opened = (Report.opened || 0) + 1);
  const { details: own, moving } = await detailsOf(id) || { details: null, moving: null };
  if (opened !== Report.opened) return;
  document.title = `${run.system} ${id}`;

  const section = (title, full, ...content) => el("section", { class: full ? "full" : "" }, el("h2", {}, title), content);
  const dl = (pairs) => el("dl", {}, pairs.filter(([, value]) => value !== "" && value !== null && value !== undefined).map(([key, value]) => el("div", {}, el("dt", {}, key), el("dd", {}, value))));
  // Nested data as lines `a.b: value`.
  const flat = (value, prefix = "") => value !== null && typeof value === "object" && !Array.isArray(value)
    ? Object.entries(value).flatMap(([key, entry]) => flat(entry, prefix ? `${prefix}.${key}` : key))
    : [[prefix, Array.isArray(value) ? JSON.stringify(value) : value === null ? "–" : String(value)]];
  // A rule of this version, by number or name, leads to its entry in the report.
  const entry = (key, text) => document.getElementById(`rule-${key}`) ? el("a", { href: `#rule-${encodeURIComponent(key)}` }, text) : text;
  const num = (value, digits) => el("td", { class: "n" }, number(value, digits));

  const parts = [el("section", { class: "full" }, back,
    el("h1", { tabindex: "-1" }, swatch(run.system), `${run.system} on ${run.dataset}`),
    el("p", {}, badge(run.status), " ", badge(run.verdict), " ", el("span", { class: "badge" }, run.class), " ", el("span", { class: "soft" }, id)),
    own && own.reason ? el("p", {}, own.reason) : null,
    dl([["epoch", run.epoch_s === null ? "not measured" : `${number(run.epoch_s)} s of ${run.part}, ${run.samples === 1 ? "one epoch" : `${run.kind === "bootstrap95" ? "95 % interval" : "range"} ${number(run.low)}–${number(run.high)} s, ${run.samples} epochs`}`],
      ["preprocessing", own ? `${number(run.prep_s)} s${own.preprocess.reused ? " (used again)" : ""}` : ""], ["memory", Report.memory(run.memory)], ["device", run.device], ["SSD", run.disk], ["read amplification", number(run.amplification)],
      ["AU, SE", `${number(run.au)}, ${number(run.se)}`], ["engine efficiency", number(run.engine)], ["distance to the limit", number(run.distance)], ["working set / memory", number(run.working_set)],
      ["predicted epoch", own && own.predicted ? `${number(own.predicted)} s` : ""], ["started", own ? own.started : ""], ["took", own && own.duration ? `${number(own.duration)} s` : ""], ["host", run.host]]))];
  if (!own) {
    parts.push(section("Details", true, el("p", {}, `They are missing: the folder ${data.files} has to lie beside this page.`)));
    page.replaceChildren(el("div", { class: "run-grid" }, parts));
    return;
  }

  if (own.epochs.length) {
    const stages = [...new Set(own.epochs.flatMap((epoch) => Object.keys(epoch.stages)))];
    parts.push(section("Stages", true,
      el("p", { class: "soft" }, "Seconds in which at least one such stage was open; stages overlap, so they may add up to more than the epoch."),
      table(["epoch", "s", ...stages, "batches", "device read", "requests", "loss", "accuracy", "test accuracy"], own.epochs.map((epoch) => [`${epoch.epoch}${epoch.warmup ? " (warm-up)" : ""}`, num(epoch.seconds),
        ...stages.map((stage) => num(epoch.stages[stage])), num(epoch.batches), el("td", { class: "n" }, bytes(epoch.device_bytes)), num(epoch.device_requests), num(epoch.loss, 4), num(epoch.accuracy, 4), num(epoch.test_accuracy, 4)]), "Stages of each epoch"),
      el("div", { class: "chart", id: "run-stages", style: { minHeight: "14rem" } })));
  } else {
    parts.push(section("Stages", true, el("p", {}, "No epoch was finished.")));
  }
  if (own.latencies.rows.length) {
    parts.push(section("Latency of requests", true, el("p", { class: "soft" }, "Microseconds from submission to completion, of the measured epochs' requests by the system's own readers and writers."),
      table(own.latencies.heads, own.latencies.rows.map(([direction, size, ...counts]) => [direction, size, ...counts.map((count) => num(count, 4))]), "Latency of requests by direction and size")));
  } else if (own.epochs.length) {
    parts.push(section("Latency of requests", true, el("p", {}, `– (${own.latencies.why})`)));
  }
  const learning = Report.learning.of(own.epochs);
  if (learning.length) {
    parts.push(section("Loss and accuracy", true,
      el("p", { class: "soft" }, "Training time is the sum of the epochs' seconds: preparation, tests and checks are left out. Hollow points are warm-up epochs, which train, too."),
      el("div", { class: "chart", id: "run-learning", role: "group", "aria-label": "Loss and accuracy over epochs and training time; the table of stages has the same numbers" })));
  }
  const beside = own.files.find(([name]) => name === "telemetry.parquet");
  parts.push(section("Over time", true, moving && moving.line ? el("div", { class: "chart", id: "run-line" })
    : el("p", {}, "No figure draws this run, or it left no telemetry, so it has no timeline here. ", beside ? el("a", { href: beside[1] }, "telemetry.parquet") : null)));
  if (moving && moving.pipeline) {
    const p = moving.pipeline;
    parts.push(section("Pipeline of one epoch", true, el("p", { class: "soft" }, `Epoch ${p.epoch}: which mini-batch was in which stage when${p.batches < p.of ? `; the first ${p.batches} of ${p.of} mini-batches` : ""}.`), el("div", { class: "chart", id: "run-pipeline" })));
  }

  const memory = own.memory;
  const plan = memory.plan || [];
  const largest = Math.max(1, ...plan.map((item) => item.bytes));
  parts.push(section("Memory", false,
    dl([["cap", memory.cap_bytes === undefined ? "none" : `${bytes(memory.cap_bytes)} = floor ${bytes(memory.floor_bytes)} + training ${bytes(memory.training_bytes)} + budget ${bytes(memory.budget_bytes)}`],
      ["peak", `${bytes(memory.peak_bytes)}, of it page cache ${bytes(memory.page_cache_at_peak_bytes)} and anonymous ${bytes(memory.anon_at_peak_bytes)} (nearest sample)`],
      ["cached before", `${bytes(memory.resident_before_bytes)} of ${bytes(memory.evictable_bytes)}`], ["OOM kills, reclaims", `${number(memory.oom_kills)}, ${number(memory.reclaims)}`]]),
    el("h3", {}, "Plan"), plan.length ? table(["buffer", "tier", "bytes", "share of largest"], plan.map((item) => [item.name, item.tier, el("td", { class: "n" }, bytes(item.bytes)),
      el("span", { class: "meter" }, el("i", { style: { width: `${100 * item.bytes / largest}%`, background: look(run.system).color } }))]), "Planned buffers") : el("p", {}, "The system planned no buffer.")));

  const rules = [...own.rules].sort((a, b) => a[2] - b[2]);
  parts.push(section("Verdict rules", false, rules.length ? table(["outcome", "rule", "name", "detail"], rules.map(([rule, name, ok, detail]) => [badge(ok ? "kept" : "bent"), entry(rule, rule), entry(name, name.replaceAll("_", " ")), detail]), "Verdict rules") : el("p", {}, "No rule was applied."),
    own.caveats.length ? [el("h3", {}, "Caveats"), el("ul", { class: "notes" }, own.caveats.map((text) => el("li", {}, text)))] : null));

  if (own.epochs.length) {
    const counters = [...new Set(own.epochs.flatMap((epoch) => Object.keys(epoch.counters)))];
    parts.push(section("Counters", true, table(["counter", ...own.epochs.map((epoch) => `epoch ${epoch.epoch}`)], counters.map((name) => [name, ...own.epochs.map((epoch) => num(epoch.counters[name]))]), "Counters of each epoch"),
      el("p", { class: "soft" }, `Mini-batches: ${own.epochs.map((epoch) => epoch.digest).join(", ")}`)));
  }
  parts.push(section("Notes of the system", true, Object.keys(own.notes).length ? dl(Object.entries(own.notes)) : el("p", {}, "None."), el("h3", {}, "Derived"), dl([...flat(own.extra), ...flat(own.overhead)])));
  parts.push(section("Configuration", true, dl([...flat(own.dataset, "dataset"), ...flat(own.options, "options"), ...flat(own.config)].filter(([key]) => key !== "options" || Object.keys(own.options).length))));
  parts.push(section("Environment", true, dl(Object.entries(own.environment).flatMap(([key, value]) => flat(value, key)))));
  parts.push(section("Log", true, own.log ? el("pre", { tabindex: "0" }, own.log) : el("p", {}, "The worker wrote nothing."),
    el("p", { class: "links", style: { marginTop: "0.6rem" } }, "Beside this file: ", own.files.map(([name, address]) => el("a", { href: address }, name)))));
  page.replaceChildren(el("div", { class: "run-grid" }, parts));
  page.querySelector("h1").focus({ preventScroll: true });
  drawStages();
  if (learning.length) Report.learning.draw(document.getElementById("run-learning"), own.epochs, run.system);
  if (moving && moving.line) drawLine(moving.line);
  if (moving && moving.pipeline) drawPipeline(moving.pipeline);

  function drawStages() {
    const node = document.getElementById("run-stages");
    if (!node) return;
    const names = [...new Set(own.epochs.flatMap((epoch) => Object.keys(epoch.stages)))];
    const y = own.epochs.map((epoch) => `epoch ${epoch.epoch}${epoch.warmup ? " (warm-up)" : ""}`);
    plot(node, names.map((name) => ({ type: "bar", orientation: "h", name: literal(name), y, x: own.epochs.map((epoch) => epoch.stages[name] ?? null), marker: { color: data.stage_colors[name] || "#b6bdc7", line: { color: Report.shade("ink"), width: 0.4 } }, hovertemplate: "%{x:.3g} s<extra>%{fullData.name}</extra>" })),
      { barmode: "group", height: 150 + 24 * own.epochs.length * Math.max(2, names.length / 1.6), yaxis: axis({ type: "category", autorange: "reversed" }), xaxis: axis({ title: { text: "s" }, rangemode: "tozero" }) });
  }

  function drawLine(line) {
    const x = line.t;
    const legends = { y: "legend", y2: "legend2", y3: "legend3", y4: "legend3" };
    const legend = (y) => ({ orientation: "h", x: 0, y, yanchor: "bottom", bgcolor: "rgba(0,0,0,0)" });
    const series = [
      ["cpu", "CPU", "y", shade("accent"), "solid", "%"], ["gpu", "GPU", "y", shade("fair"), "dash", "%"], ["iowait", "I/O wait", "y", shade("ink"), "dot", "%"],
      ["used", "used", "y2", shade("accent"), "solid", "MiB"], ["anon", "anonymous", "y2", "#d55e00", "dash", "MiB"], ["cache", "cached", "y2", "#009e73", "dot", "MiB"],
      ["read", "disk reads", "y3", shade("accent"), "solid", "MB/s"], ["requests", "requests", "y4", "#d55e00", "dot", "k/s"]];
    const traces = series.filter(([key]) => line[key]).map(([key, name, yaxis, color, dash, unit]) => ({ type: "scatter", mode: "lines", name, x, y: line[key], xaxis: "x", yaxis, legend: legends[yaxis], line: { color, dash, width: 1.6 }, hovertemplate: `%{y:.3g} ${unit}<extra>${name}</extra>` }));
    const shapes = own.epochs.map((epoch) => ({ type: "rect", xref: "x", yref: "paper", x0: epoch.start, x1: epoch.start + epoch.seconds, y0: 0, y1: 1, layer: "below", line: { width: 0 }, fillcolor: shade(epoch.warmup ? "fair-ground" : epoch.epoch % 2 ? "ground" : "paper") }));
    const annotations = own.epochs.map((epoch) => ({ text: epoch.warmup ? "warm-up" : `epoch ${epoch.epoch}`, showarrow: false, xref: "x", yref: "paper", x: epoch.start + epoch.seconds / 2, y: 1, yanchor: "top", font: { size: 10, color: shade("soft") } }));
    if (memory.cap_bytes !== undefined && traces.some((trace) => trace.yaxis === "y2")) shapes.push({ type: "line", xref: "paper", yref: "y2", x0: 0, x1: 1, y0: memory.cap_bytes / 2 ** 20, y1: memory.cap_bytes / 2 ** 20, line: { color: shade("bad"), width: 1.2, dash: "dashdot" } });
    plot(document.getElementById("run-line"), traces, { height: 640, hovermode: "x unified", shapes, annotations, margin: { l: 62, r: 56, t: 60, b: 46 }, legend: legend(1), legend2: legend(0.645), legend3: legend(0.285),
      xaxis: axis({ title: { text: "time since the first epoch began (s)" }, anchor: "y3" }), yaxis: axis({ domain: [0.72, 1], range: [0, 102], title: { text: "%" } }),
      yaxis2: axis({ domain: [0.37, 0.64], rangemode: "tozero", title: { text: "MiB (cap: line)" } }), yaxis3: axis({ domain: [0, 0.28], rangemode: "tozero", title: { text: "reads (MB/s)" } }),
      yaxis4: axis({ overlaying: "y3", side: "right", rangemode: "tozero", showgrid: false, tickmode: "auto", nticks: 5, title: { text: "requests (k/s)" } }) });
  }

  function drawPipeline(p) {
    const order = [...new Set(p.spans.map((span) => span[1]))];
    const place = new Map(order.map((batch, index) => [batch, index]));
    const lanes = p.stages.map((_, index) => (index + 0.5) / p.stages.length - 0.5);
    plot(document.getElementById("run-pipeline"), p.stages.map((stage, index) => {
      const mine = p.spans.filter((span) => span[0] === index);
      return { type: "bar", orientation: "h", name: literal(stage), base: mine.map((span) => span[2] / 1e3), x: mine.map((span) => span[3] / 1e3), y: mine.map((span) => place.get(span[1]) + lanes[index]), width: 0.95 / p.stages.length,
        marker: { color: data.stage_colors[stage] || "#b6bdc7", line: { width: 0 } }, hoverinfo: "text", hovertext: mine.map((span) => `mini-batch ${span[1]}, ${literal(stage)}<br>${number(span[2] / 1e3)} s, for ${number(span[3])} ms`), textposition: "none" };
    }), { barmode: "overlay", height: Math.min(1400, 150 + Math.max(160, 13 * order.length)), xaxis: axis({ title: { text: "time since the epoch began (s)" } }),
      yaxis: axis({ title: { text: "mini-batch, in order of start" }, autorange: "reversed", showgrid: false }) });
  }
};
window.addEventListener("hashchange", Report.route);
Report.route();
