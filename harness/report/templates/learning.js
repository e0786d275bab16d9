"use strict";
// Loss and accuracy on a run's page, over epochs and over training time. A panel is drawn for what the epochs have.
Report.learning = (() => {
  const { axis, plot, look } = Report;
  const NARROW = 640;
  // Pixels of a panel, of the gap below it (ticks and title), and around all panels.
  const PANEL = 150, GAP = 70, ABOVE = 40, BELOW = 56;
  const CURVES = [
    { key: "loss", name: "training loss", row: "loss", dash: "solid" },
    { key: "accuracy", name: "training accuracy", row: "accuracy", dash: "dash" },
    { key: "test_accuracy", name: "test accuracy", row: "accuracy", dash: "solid" },
  ];
  const known = (value) => value !== null && value !== undefined;
  const of = (epochs) => CURVES.filter((curve) => epochs.some((epoch) => known(epoch[curve.key])));

  // Seconds of training up to the end of each epoch: those of the epochs alone, as they are measured.
  function trained(epochs) {
    let seconds = 0;
    return epochs.map((epoch) => (seconds += epoch.seconds));
  }

  function draw(node, epochs, system) {
    const curves = of(epochs);
    const rows = [...new Set(curves.map((curve) => curve.row))];
    const columns = [
      { title: "epoch", x: epochs.map((epoch) => epoch.epoch), ticks: epochs.length <= 12 ? { dtick: 1 } : {} },
      { title: "training time (s)", x: trained(epochs), ticks: { rangemode: "tozero" } },
    ];
    const narrow = node.clientWidth < NARROW;
    const stacked = narrow ? rows.length * columns.length : rows.length;
    const pixels = PANEL * stacked + GAP * (stacked - 1);
    const shape = { height: pixels + ABOVE + BELOW, margin: { l: 62, r: 14, t: ABOVE, b: BELOW } };
    const traces = [];
    rows.forEach((row, y) => columns.forEach((column, x) => {
      const panel = y * columns.length + x + 1;
      const suffix = panel === 1 ? "" : panel;
      const place = narrow ? panel - 1 : y;
      const top = 1 - place * (PANEL + GAP) / pixels;
      const bottom = Math.max(0, top - PANEL / pixels);
      const left = narrow ? 0 : 0.54 * x;
      shape[`xaxis${suffix}`] = axis({ domain: [left, narrow ? 1 : left + 0.46], anchor: `y${suffix}`, title: { text: column.title, standoff: 6 }, ...column.ticks });
      shape[`yaxis${suffix}`] = axis({ domain: [bottom, top], anchor: `x${suffix}`, title: { text: row } });
      for (const curve of curves.filter((each) => each.row === row)) {
        traces.push({
          type: "scatter", mode: "lines+markers", name: curve.name, legendgroup: curve.key, showlegend: x === 0,
          x: column.x, y: epochs.map((epoch) => epoch[curve.key] ?? null), xaxis: `x${suffix}`, yaxis: `y${suffix}`,
          line: { color: look(system).color, dash: curve.dash, width: 1.6 },
          marker: { color: look(system).color, size: 7, symbol: epochs.map((epoch) => epoch.warmup ? "circle-open" : "circle") },
          text: epochs.map((epoch) => `epoch ${epoch.epoch}${epoch.warmup ? " (warm-up)" : ""}`),
          hovertemplate: "%{text}: %{y:.4g}<extra>%{fullData.name}</extra>",
        });
      }
    }));
    plot(node, traces, shape);
  }

  return { of, draw };
})();
