"use strict";
// Draws the plots of the page.
(() => {
  const { root, byId, make, ink, axis, theme, data } = fullpipe;

  // Of many lines, an evenly spread selection is shown at first.
  const INITIAL_LINES = 12;
  const stride = Math.ceil(data.lines.length / INITIAL_LINES);
  const shown = data.lines.map((_, i) => i % stride === 0);
  let log = false;
  let range = null; // [from, to] in seconds, or null for the whole run
  let charts = [];

  const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3]];
  const dashOf = (line) => DASHES[line.dash % DASHES.length];
  const colourOf = (line) => (theme.dark ? line.dark : line.light);
  const visible = (curve) =>
    curve.whole_run ? data.lines.some((l, i) => shown[i] && l.run === data.lines[curve.line].run) : shown[curve.line];

  const figure = (v) => {
    if (v === null || v === undefined) return "–";
    const a = Math.abs(v);
    return a >= 1000 ? Math.round(v).toString() : a >= 100 ? v.toFixed(0) : a >= 10 ? v.toFixed(1) : v === 0 ? "0" : v.toPrecision(3);
  };

  // Each state has its own colour; common states have fixed ones.
  const STATE_HUES = { startup: 38, slowstart: 38, drain: 20, probebw: 205, congestionavoidance: 205, probertt: 320, recovery: 350, loss: 0 };
  const stateColour = (name) => {
    const plain = name.toLowerCase().replace(/[^a-z]/g, "");
    const known = Object.keys(STATE_HUES).find((k) => plain.startsWith(k));
    let hue = known === undefined ? 0 : STATE_HUES[known];
    let shade = 0;
    if (known === undefined) for (const c of plain) hue = (hue * 31 + c.charCodeAt(0)) % 360;
    else for (const c of plain.slice(known.length)) shade = (shade * 7 + c.charCodeAt(0)) % 5;
    return `hsl(${hue} 65% ${theme.dark ? 34 + shade * 6 : 84 - shade * 7}%)`;
  };

  const axes = (unit) => {
    const common = axis();
    return [
      { ...common, size: 26, values: (u, ticks) => ticks.map((t) => `${+t.toFixed(6)} s`) },
      { ...common, size: 58, values: (u, ticks) => ticks.map((t) => (t === null ? null : t >= 1e5 || (t > 0 && t < 1e-3) ? t.toExponential(0) : +t.toFixed(6))) },
    ];
  };

  const setRange = (next) => {
    range = next;
    byId("reset").disabled = range === null;
    const [min, max] = range ?? [0, data.end];
    for (const c of charts) c.plot.setScale("x", { min, max });
  };

  const cursor = () => ({
    sync: { key: "time", scales: ["x", null], filters: { pub: (type) => type !== "mousedown" && type !== "mouseup" && type !== "dblclick" } },
    drag: { x: true, y: false, setScale: false },
    points: { size: 6 },
    y: false,
  });

  const common = (box, height) => ({
    width: box.clientWidth || 600,
    height,
    legend: { show: false },
    cursor: cursor(),
    padding: [10, 24, 0, 0],
  });

  const selectHook = (u) => {
    if (u.select.width < 4) return;
    const from = u.posToVal(u.select.left, "x");
    const to = u.posToVal(u.select.left + u.select.width, "x");
    u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    if (to - from > data.end / 1e6) setRange([Math.max(0, from), Math.min(data.end, to)]);
  };

  const atTime = (t) => {
    let low = 0;
    let high = data.t.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (data.t[middle] < t) low = middle + 1;
      else high = middle;
    }
    return low;
  };

  // Range of the vertical axis: from 0 over the visible curves in the visible time, with the relevant marks.
  const span = (panel) => (u) => {
    const from = atTime(u.scales.x.min ?? 0);
    const to = atTime(u.scales.x.max ?? data.end);
    let low = Infinity;
    let high = -Infinity;
    for (const curve of panel.curves) {
      if (!visible(curve)) continue;
      for (let i = from; i <= to && i < curve.v.length; i++) {
        const v = curve.v[i];
        if (v === null || (log && v <= 0)) continue;
        if (v < low) low = v;
        if (v > high) high = v;
      }
    }
    const drawn = high;
    for (const m of panel.marks) if ((m.always || m.y <= drawn * 1.15) && m.y > high) high = m.y;
    if (!(high > 0)) return log ? [1, 10] : [0, 1];
    if (!log) return [0, high * 1.08];
    if (!(low > 0) || low === Infinity) low = high / 10;
    for (const m of panel.marks) if (m.always && m.y > 0 && m.y < low) low = m.y;
    return [Math.max(low / 1.2, high / 1e6), high * 1.3];
  };

  // Number of segments of the visible curves that cross each rectangle [left, top, right, bottom].
  const crossed = (u, panel, rooms) => {
    const counts = rooms.map(() => 0);
    const from = Math.max(0, atTime(u.scales.x.min) - 1);
    const to = Math.min(data.t.length - 1, atTime(u.scales.x.max));
    const xs = [];
    for (let i = from; i <= to; i++) xs.push(u.valToPos(data.t[i], "x", true));
    for (const curve of panel.curves) {
      if (!visible(curve)) continue;
      let before = null;
      for (let i = from; i <= to; i++) {
        const v = curve.v[i];
        if (v === null || v === undefined || (log && v <= 0)) { before = null; continue; }
        const y = u.valToPos(v, "y", true);
        if (before !== null) {
          const [low, high] = before < y ? [before, y] : [y, before];
          rooms.forEach(([left, top, right, bottom], n) => {
            if (xs[i - from - 1] <= right && xs[i - from] >= left && low <= bottom && high >= top) counts[n]++;
          });
        }
        before = y;
      }
    }
    return counts;
  };

  const drawMarks = (panel) => (u) => {
    const { ctx, bbox } = u;
    const px = devicePixelRatio;
    const names = [];
    ctx.save();
    ctx.font = `${12 * px}px system-ui, sans-serif`;
    for (const m of panel.marks) {
      if (m.y < u.scales.y.min || m.y > u.scales.y.max || (log && m.y <= 0)) continue;
      const y = u.valToPos(m.y, "y", true);
      ctx.strokeStyle = ink("--faint");
      ctx.fillStyle = ink("--faint");
      ctx.setLineDash([6 * px, 4 * px]);
      ctx.lineWidth = px;
      ctx.beginPath();
      ctx.moveTo(bbox.left, y);
      ctx.lineTo(bbox.left + bbox.width, y);
      ctx.stroke();
      // The label goes where it hides the least of the curves and no other label.
      const wide = ctx.measureText(m.label).width;
      const rooms = [1, 0, 0.5, 0.25, 0.75].flatMap((share) => {
        const left = bbox.left + 4 * px + share * (bbox.width - 8 * px - wide);
        return [-16, 3].map((down) => [left, y + down * px, left + wide, y + (down + 13) * px]);
      });
      const meets = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];
      const costs = crossed(u, panel, rooms).map((count, n) => {
        const outside = rooms[n][1] < bbox.top || rooms[n][3] > bbox.top + bbox.height;
        return count + (outside || names.some((name) => meets(name, rooms[n])) ? 1e6 : 0);
      });
      const room = rooms[costs.indexOf(Math.min(...costs))];
      names.push(room);
      ctx.textAlign = "left";
      ctx.textBaseline = "bottom";
      const at = [m.label, room[0], room[3] + px];
      // An outline in the background colour keeps the label readable on top of curves.
      ctx.setLineDash([]);
      ctx.lineWidth = 4 * px;
      ctx.strokeStyle = ink("--ground");
      ctx.strokeText(...at);
      ctx.fillText(...at);
    }
    ctx.restore();
  };

  const heading = (box, title, note) => {
    const h = make("h3", "", title);
    if (note) h.append(make("small", "", note));
    const readout = make("span", "readout");
    h.append(readout);
    box.append(h);
    return readout;
  };

  const addPanel = (panel) => {
    const box = make("div", panel.id === "goodput" ? "chart wide" : "chart");
    box.dataset.panel = panel.id;
    byId("charts").append(box);
    const note = panel.id === "goodput" ? `${panel.unit}, ${data.counted}, mean over ${data.smoothing}` : panel.unit;
    const readout = heading(box, panel.title, note);
    const usable = (v) => (log ? v.map((x) => (x > 0 ? x : null)) : v);
    const plot = new uPlot(
      {
        ...common(box, panel.id === "goodput" ? 270 : 210),
        scales: { x: { time: false, range: () => range ?? [0, data.end] }, y: { distr: log ? 3 : 1, range: span(panel) } },
        axes: axes(panel.unit),
        series: [
          {},
          ...panel.curves.map((curve) => {
            const line = data.lines[curve.line];
            return { label: line.label, stroke: colourOf(line), width: 1.6, dash: dashOf(line), show: visible(curve), points: { show: false }, spanGaps: false };
          }),
        ],
        hooks: {
          draw: [drawMarks(panel)],
          setSelect: [selectHook],
          setCursor: [
            (u) => {
              const i = u.cursor.idx;
              readout.replaceChildren();
              if (i === null || i === undefined) return;
              if (panel.id === "goodput") readout.append(make("span", "", `at ${data.t[i].toFixed(2)} s:`));
              let room = 8;
              for (const curve of panel.curves) {
                if (!visible(curve) || room-- <= 0) continue;
                const line = data.lines[curve.line];
                const value = make("span", "", `${line.label} ${figure(curve.v[i])}`);
                value.style.color = colourOf(line);
                readout.append(value);
              }
            },
          ],
        },
      },
      [data.t, ...panel.curves.map((c) => usable(c.v))],
      box,
    );
    charts.push({ box, plot, panel });
  };

  const ROW = 24;
  const addStates = () => {
    const rows = () => data.states.filter((s) => shown[s.line]);
    const box = make("div", "chart wide");
    box.dataset.panel = "states";
    byId("charts").append(box);
    const readout = heading(box, data.states_title, "");
    const height = () => Math.max(1, rows().length) * ROW + 44;
    const stateAt = (s, t) => {
      let found = null;
      for (let i = 0; i < s.at.length && s.at[i] <= t; i++) found = s.name[i];
      return found;
    };
    const draw = (u) => {
      const { ctx, bbox } = u;
      const px = devicePixelRatio;
      ctx.save();
      ctx.beginPath();
      ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
      ctx.clip();
      ctx.font = `${12 * px}px system-ui, sans-serif`;
      ctx.textBaseline = "middle";
      ctx.textAlign = "left";
      const right = bbox.left + bbox.width;
      rows().forEach((s, row) => {
        const top = bbox.top + row * ROW * px;
        let labelled = -Infinity;
        s.at.forEach((from, i) => {
          // A state without a name is an unknown one.
          if (s.name[i] === "") return;
          const to = i + 1 < s.at.length ? s.at[i + 1] : data.end;
          const x0 = Math.max(bbox.left, u.valToPos(from, "x", true));
          const x1 = Math.min(right, u.valToPos(to, "x", true));
          if (x1 <= bbox.left || x0 >= right) return;
          ctx.fillStyle = stateColour(s.name[i]);
          ctx.fillRect(x0, top + 2 * px, Math.max(x1 - x0, 0.5), (ROW - 4) * px);
          const width = ctx.measureText(s.name[i]).width;
          if (x1 - x0 > width + 10 * px && x0 > labelled) {
            ctx.fillStyle = ink("--ink");
            ctx.fillText(s.name[i], x0 + 5 * px, top + (ROW / 2) * px);
            labelled = x0 + width;
          }
        });
      });
      ctx.restore();
      ctx.save();
      ctx.font = `${12 * px}px system-ui, sans-serif`;
      ctx.textBaseline = "middle";
      ctx.textAlign = "right";
      rows().forEach((s, row) => {
        const line = data.lines[s.line];
        ctx.fillStyle = colourOf(line);
        const room = bbox.left - 8 * px;
        let text = line.label;
        while (text.length > 2 && ctx.measureText(text).width > room) text = text.slice(0, -2) + "…";
        ctx.fillText(text, bbox.left - 6 * px, bbox.top + (row + 0.5) * ROW * px);
      });
      ctx.restore();
    };
    const [x] = axes("");
    const plot = new uPlot(
      {
        ...common(box, height()),
        scales: { x: { time: false, range: () => range ?? [0, data.end] }, y: { range: [0, 1] } },
        axes: [x, { show: true, size: 100, values: () => [], grid: { show: false }, ticks: { show: false } }],
        series: [{}, { show: true, stroke: "transparent", points: { show: false } }],
        hooks: {
          draw: [draw],
          setSelect: [selectHook],
          setCursor: [
            (u) => {
              readout.replaceChildren();
              if (u.cursor.left === undefined || u.cursor.left < 0) return;
              const t = u.posToVal(u.cursor.left, "x");
              for (const s of rows().slice(0, 8)) {
                const line = data.lines[s.line];
                const value = make("span", "", `${line.label} ${stateAt(s, t) || "–"}`);
                value.style.color = colourOf(line);
                readout.append(value);
              }
            },
          ],
        },
      },
      [[0, data.end], [null, null]],
      box,
    );
    // Legend of the colours, for intervals too short for their name.
    const legend = make("p", "legend");
    for (const name of [...new Set(data.states.flatMap((s) => s.name.filter((name) => name !== "")))].slice(0, 24)) {
      const swatch = make("i");
      swatch.style.background = stateColour(name);
      const entry = make("span");
      entry.append(swatch, name);
      legend.append(entry);
    }
    box.append(legend);
    charts.push({ box, plot, states: height });
  };

  const build = () => {
    for (const c of charts) c.plot.destroy();
    charts = [];
    byId("charts").replaceChildren();
    for (const panel of data.panels) addPanel(panel);
    if (data.states.length) addStates();
    for (const c of charts) c.plot.over.addEventListener("dblclick", () => setRange(null));
    root.dataset.charts = charts.length;
  };

  const showLines = () => {
    for (const c of charts) {
      if (c.panel) c.panel.curves.forEach((curve, i) => c.plot.setSeries(i + 1, { show: visible(curve) }));
      else {
        c.plot.setSize({ width: c.plot.width, height: c.states() });
        c.plot.redraw();
      }
    }
    [...byId("lines").children].forEach((b) => b.dataset.line !== undefined && b.setAttribute("aria-pressed", shown[b.dataset.line]));
  };

  const addButtons = () => {
    const bar = byId("lines");
    bar.replaceChildren();
    data.lines.forEach((line, i) => {
      const b = make("button");
      b.type = "button";
      b.dataset.line = i;
      b.setAttribute("aria-pressed", shown[i]);
      const stroke = make("i", "stroke");
      stroke.style.borderColor = colourOf(line);
      stroke.style.borderTopStyle = ["solid", "dashed", "dotted", "dashed"][line.dash % 4];
      b.append(stroke, line.label);
      b.addEventListener("click", () => { shown[i] = !shown[i]; showLines(); });
      b.addEventListener("dblclick", () => {
        const alone = shown.every((s, j) => s === (j === i));
        shown.forEach((_, j) => { shown[j] = alone || j === i; });
        showLines();
      });
      bar.append(b);
    });
    if (data.lines.length > INITIAL_LINES) {
      const all = make("button", "", "all");
      all.type = "button";
      all.addEventListener("click", () => { const on = !shown.every(Boolean); shown.fill(on); showLines(); });
      bar.append(all);
    }
  };

  // For a sweep: one selector per parameter; only runs with the selected values are shown.
  const addChoices = () => {
    const keys = [...new Set(data.lines.flatMap((l) => l.of.map(([key]) => key)))];
    const chosen = new Map();
    const valueOf = (line, key) => line.of.find(([k]) => k === key)?.[1];
    for (const key of keys) {
      const values = [...new Set(data.lines.map((l) => valueOf(l, key)).filter((v) => v !== undefined))];
      if (values.length < 2) continue;
      const label = make("label", "", `${key} `);
      const select = make("select");
      select.dataset.key = key;
      for (const value of ["all", ...values]) {
        const option = make("option", "", value);
        option.value = value === "all" ? "" : value;
        select.append(option);
      }
      select.addEventListener("change", () => {
        if (select.value) chosen.set(key, select.value); else chosen.delete(key);
        data.lines.forEach((line, i) => {
          shown[i] = chosen.size ? [...chosen].every(([k, v]) => valueOf(line, k) === v) : i % stride === 0;
        });
        showLines();
      });
      label.append(select);
      byId("choices").append(label);
    }
  };

  // A link that opens the scenario in the playground, made when the scenario is shown: raw DEFLATE in base64url.
  // A page cannot read the files that some scenarios name, and the playground bounds scenarios and links (its model.js).
  const NAMES_FILES = /\btrace["']?\s*=\s*["'[]|["']policy:/;
  const MAX_TEXT = 100000;
  const MAX_LINK = 20000;
  const addPlaygroundLink = async (box) => {
    const toml = box.querySelector("pre").textContent;
    if (NAMES_FILES.test(toml) || toml.length >= MAX_TEXT) return;
    const state = JSON.stringify({ toml });
    const packed = new Blob([state]).stream().pipeThrough(new CompressionStream("deflate-raw"));
    const bytes = new Uint8Array(await new Response(packed).arrayBuffer());
    const text = btoa(Array.from(bytes, (b) => String.fromCharCode(b)).join(""));
    const fragment = "#s=" + text.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
    if (fragment.length > MAX_LINK) return;
    const link = make("a", "playground", "Open in the playground");
    link.href = "playground.html" + fragment;
    box.append(link);
  };
  for (const box of document.querySelectorAll("details.scenario")) box.addEventListener("toggle", () => addPlaygroundLink(box), { once: true });

  fullpipe.onTheme(() => { addButtons(); build(); });
  if (!data.t.length || !data.panels.length) return;
  byId("plots").hidden = false;
  byId("log").addEventListener("change", (e) => { log = e.target.checked; build(); });
  byId("reset").addEventListener("click", () => setRange(null));
  addButtons();
  addChoices();
  build();
  let width = byId("charts").clientWidth;
  new ResizeObserver(() => {
    if (byId("charts").clientWidth === width) return;
    width = byId("charts").clientWidth;
    for (const c of charts) c.plot.setSize({ width: c.box.clientWidth, height: c.states ? c.states() : c.plot.height });
  }).observe(byId("charts"));
})();
