"use strict";
// Draws the paths of a mesh.
(() => {
  const { root, byId, make, ink, axis, theme, data } = fullpipe;
  const colourOf = (controller) => (theme.dark ? controller.dark : controller.light);
  if (!byId("pair")) {
    fullpipe.onTheme(() => {});
    return;
  }

  const { bins } = data;
  const t = Array.from({ length: bins.steps }, (_, i) => bins.start_s + (i + 0.5) * bins.step_s);
  const whole = [bins.start_s, bins.start_s + bins.steps * bins.step_s];
  let range = whole;
  let chosen = 0;
  let plots = [];

  const figure = (v) => (v === null || v === undefined ? "–" : v >= 100 ? v.toFixed(0) : v >= 10 ? v.toFixed(1) : v === 0 ? "0" : v.toPrecision(3));
  const utc = (s) => new Date(s * 1000).toISOString();
  const long = whole[1] - whole[0] > 2 * 86400;
  const clock = (s, i, ticks) => {
    const text = utc(s);
    if (long) return range[1] - range[0] > 2 * 86400 ? text.slice(5, 10) : `${text.slice(5, 10)} ${text.slice(11, 16)}`;
    return text.slice(11, 16);
  };
  const alpha = (colour, a) => `${colour}${Math.round(a * 255).toString(16).padStart(2, "0")}`;

  const axes = (values) => {
    const common = axis();
    return [
      { ...common, size: 26, space: 90, incrs: [60, 300, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400, 172800, 604800, 2592000], values: (u, ticks) => ticks.map(clock) },
      { ...common, size: 58, values },
    ];
  };

  const marks = (u) => {
    const { ctx, bbox } = u;
    const px = devicePixelRatio;
    ctx.save();
    ctx.setLineDash([5 * px, 4 * px]);
    ctx.lineWidth = 1.5 * px;
    ctx.strokeStyle = ink("--bad");
    for (const nth of data.pairs[chosen].changes) {
      const change = data.changes[nth];
      for (const at of [change.at_s, change.end_s]) {
        if (at === null || at < u.scales.x.min || at > u.scales.x.max) continue;
        const x = u.valToPos(at, "x", true);
        ctx.globalAlpha = at === change.at_s ? 1 : 0.45;
        ctx.beginPath();
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.stroke();
      }
    }
    ctx.restore();
  };

  const setRange = (next) => {
    range = next;
    for (const plot of plots) plot.u.setScale("x", { min: range[0], max: range[1] });
  };

  const isolated = (u, nth) => {
    const values = u.data[nth];
    const is = (i) => values[i] !== null && values[i] !== undefined;
    return Array.from(values.keys()).filter((i) => is(i) && !is(i - 1) && !is(i + 1));
  };

  // Adds a plot of lines, each with an optional band.
  const addPlot = (title, unit, lines, least) => {
    const box = make("div");
    const h = make("h3", "", title);
    h.append(make("small", "", unit));
    for (const line of lines) {
      const name = make("span", "line");
      const stroke = make("i", "stroke");
      stroke.style.borderColor = line.colour;
      if (line.dash) stroke.style.borderTopStyle = "dashed";
      name.append(stroke, line.name);
      h.append(name);
    }
    const readout = make("span", "readout");
    h.append(readout);
    box.append(h);
    byId("plots-of-pair").append(box);
    const columns = [t];
    const series = [{}];
    const bands = [];
    const spans = bins.step_s;
    for (const line of lines) {
      if (line.high) {
        columns.push(line.high, line.low);
        const edge = { stroke: "transparent", width: 0, points: { show: false } };
        series.push(edge, edge);
        bands.push({ series: [series.length - 2, series.length - 1], fill: alpha(line.colour, 0.22) });
      }
      columns.push(line.values);
      // A value between two gaps is drawn as a point.
      series.push({ stroke: line.colour, width: 1.6, dash: line.dash, points: { show: true, size: 4, fill: line.colour, filter: isolated } });
      line.column = columns.length - 1;
    }
    const top = () => {
      let most = least;
      for (let c = 1; c < columns.length; c++)
        for (let i = 0; i < t.length; i++) {
          const v = columns[c][i];
          if (v !== null && v > most && t[i] >= range[0] - spans && t[i] <= range[1] + spans) most = v;
        }
      return [0, most * 1.08];
    };
    const u = new uPlot({
      width: box.clientWidth || 600,
      height: 190,
      legend: { show: false },
      padding: [8, 16, 0, 0],
      scales: { x: { time: false, range: () => range }, y: { range: top } },
      axes: axes((u, ticks) => ticks.map((v) => (v === null ? null : +v.toPrecision(6)))),
      cursor: { sync: { key: "mesh" }, drag: { x: true, y: false, setScale: false }, points: { show: false }, y: false },
      series,
      bands,
      hooks: {
        draw: [marks],
        setSelect: [(u) => {
          if (u.select.width < 4) return;
          const from = u.posToVal(u.select.left, "x");
          const to = u.posToVal(u.select.left + u.select.width, "x");
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          if (to - from > 2 * bins.step_s) setRange([from, to]);
        }],
        setCursor: [(u) => {
          const i = u.cursor.idx;
          readout.replaceChildren();
          if (i === null || i === undefined) return;
          readout.append(make("span", "", utc(t[i]).slice(5, 16).replace("T", " ")));
          for (const line of lines) {
            const one = make("span", "", `${line.name} ${figure(line.values[i])}`);
            one.style.color = line.colour;
            readout.append(one);
          }
        }],
      },
    }, columns, box);
    u.over.addEventListener("dblclick", () => setRange(whole));
    plots.push({ u, box });
  };

  const show = () => {
    const pair = data.pairs[chosen];
    for (const plot of plots) plot.u.destroy();
    plots = [];
    byId("plots-of-pair").replaceChildren();
    byId("pair").value = chosen;
    const facts = byId("facts");
    facts.replaceChildren();
    for (const [name, text] of pair.story) facts.append(make("dt", "", name), make("dd", "", text));
    const list = byId("changes-of-pair");
    list.replaceChildren();
    for (const nth of [...pair.changes].reverse()) {
      const change = data.changes[nth];
      const item = make("li", change.end_s === null ? "open" : "");
      item.append(make("time", "", change.when), make("b", "", change.title), make("small", "", change.lines.join(" · ")));
      list.append(item);
    }
    for (const b of document.querySelectorAll(".matrix button")) b.setAttribute("aria-pressed", +b.dataset.pair === chosen);
    const calm = theme.dark ? "#6fd3a0" : "#1a7f4b";
    if (pair.rate.length)
      addPlot("Goodput", "Mbit/s", pair.rate.map(([low, middle, high], cc) =>
        ({ name: data.controllers[cc].name, colour: colourOf(data.controllers[cc]), low, values: middle, high })), 0.001);
    const [least, middle, most] = pair.rtt;
    addPlot("Probe RTT", "ms", [{ name: "median", colour: calm, low: least, values: middle, high: most }], 0.1);
    const any = (values) => values.some((v) => v !== null && v > 0);
    const losses = pair.retransmitted.map((values, cc) =>
      ({ name: `${data.controllers[cc].name} retr`, colour: colourOf(data.controllers[cc]), values }));
    losses.push({ name: "probe loss", colour: calm, values: pair.lost, dash: [3, 3] });
    if (any(pair.failed)) losses.push({ name: "failed transfers", colour: ink("--bad"), values: pair.failed, dash: [8, 4] });
    addPlot("Loss", "%", losses, 1);
  };

  // Figure 7: one step per path.
  let cdf = null;
  const showCdf = () => {
    if (!byId("cdf") || !data.cdf.some((all) => all.length)) return;
    if (cdf) cdf.destroy();
    byId("cdf").replaceChildren();
    const at = [...new Set(data.cdf.flat())].sort((a, b) => a - b);
    const x = [Math.min(0.5, at[0] / 1.3), ...at, Math.max(2, at[at.length - 1] * 1.3)];
    const share = (all) => x.map((ratio) => all.filter((gain) => gain <= ratio).length / all.length);
    const common = axis();
    const one = (u) => {
      const px = u.valToPos(1, "x", true);
      u.ctx.save();
      u.ctx.strokeStyle = ink("--faint");
      u.ctx.setLineDash([4, 4]);
      u.ctx.beginPath();
      u.ctx.moveTo(px, u.bbox.top);
      u.ctx.lineTo(px, u.bbox.top + u.bbox.height);
      u.ctx.stroke();
      u.ctx.restore();
    };
    const names = make("p", "hint");
    data.controllers.slice(1).forEach((controller) => {
      const stroke = make("i", "stroke");
      stroke.style.borderColor = colourOf(controller);
      const name = make("span", "line");
      name.append(stroke, controller.name);
      names.append(name, " ");
    });
    byId("cdf").append(names);
    cdf = new uPlot({
      width: byId("cdf").clientWidth || 600,
      height: 280,
      legend: { show: false },
      padding: [8, 16, 0, 0],
      cursor: { drag: { x: false, y: false }, points: { show: false } },
      scales: { x: { time: false, distr: 3, range: [x[0], x[x.length - 1]] }, y: { range: [0, 1] } },
      axes: [
        { ...common, size: 44, label: `goodput / ${data.controllers[0].name} goodput`, labelSize: 18, labelFont: "12px system-ui, sans-serif",
          splits: () => [0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500].filter((v) => v >= x[0] && v <= x[x.length - 1]),
          values: (u, ticks) => ticks.map((v) => `×${v}`), filter: (u, splits) => splits },
        { ...common, size: 58, values: (u, ticks) => ticks.map((v) => `${Math.round(v * 100)} %`) },
      ],
      series: [{}, ...data.controllers.slice(1).map((controller) =>
        ({ stroke: colourOf(controller), width: 2, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } }))],
      hooks: { draw: [one] },
    }, [x, ...data.cdf.map(share)], byId("cdf"));
  };

  const choose = (nth, scroll) => {
    chosen = nth;
    show();
    if (scroll) byId("story").scrollIntoView({ behavior: "smooth" });
  };
  const all = () => { show(); showCdf(); };
  for (const b of document.querySelectorAll(".matrix button")) b.addEventListener("click", () => choose(+b.dataset.pair, true));
  byId("pair").addEventListener("change", (e) => choose(+e.target.value, false));
  byId("turn").addEventListener("click", () => {
    const turned = data.pairs.findIndex((pair) => pair.back === chosen);
    if (turned >= 0) choose(turned, false);
  });
  fullpipe.onTheme(all);
  let width = byId("story").clientWidth;
  new ResizeObserver(() => {
    if (byId("story").clientWidth === width) return;
    width = byId("story").clientWidth;
    for (const { u, box } of plots) u.setSize({ width: box.clientWidth, height: 190 });
    if (cdf) cdf.setSize({ width: byId("cdf").clientWidth, height: 280 });
  }).observe(byId("story"));
  // Starts with a path that has an ongoing change, or else with the first path.
  const ongoing = data.pairs.findIndex((pair) => pair.changes.some((nth) => data.changes[nth].end_s === null));
  chosen = Math.max(0, ongoing);
  all();
  root.dataset.ready = "yes";
})();
