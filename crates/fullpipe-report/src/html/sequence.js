// The time-sequence plot: every packet of a connection, zoomable down to a single packet.
(() => {
  const root = document.documentElement;
  const source = document.getElementById("sequence-data");
  if (!source) return;
  const ink = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const KINDS = ["data", "again", "ack", "window", "sack"];
  const NAMES = { data: "data", again: "retransmitted", ack: "acknowledged up to here", window: "receive window up to here", sack: "selectively acknowledged" };
  const COLOURS = {
    light: { data: "#1b232c", again: "#d01c1c", ack: "#1a7f4b", window: "#b58900", sack: "#8a3fd1" },
    dark: { data: "#e6ebf0", again: "#ff6b60", ack: "#6fd3a0", window: "#e0b84a", sack: "#c39bff" },
  };
  const colours = () => COLOURS[root.classList.contains("dark") ? "dark" : "light"];

  const unpack = async (text) => {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new DataView(await new Response(plain).arrayBuffer());
  };

  // Columns one after another: kinds (u8), times (u32, microseconds since the previous mark), first bytes (i32, relative
  // to the previous mark of the same kind), lengths (u32).
  const read = (view, n) => {
    const kind = new Uint8Array(view.buffer, 0, n);
    const t = new Float64Array(n);
    const from = new Float64Array(n);
    const to = new Float64Array(n);
    const last = [0, 0, 0, 0, 0];
    let now = 0;
    for (let i = 0; i < n; i++) {
      now += view.getUint32(n + 4 * i, true) / 1e6;
      t[i] = now;
      last[kind[i]] += view.getInt32(5 * n + 4 * i, true);
      from[i] = last[kind[i]];
      to[i] = from[i] + view.getUint32(9 * n + 4 * i, true);
    }
    return { kind, t, from, to, n };
  };

  const after = (t, at) => {
    let low = 0;
    let high = t.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (t[middle] < at) low = middle + 1;
      else high = middle;
    }
    return low;
  };

  const round = (step) => {
    const power = 10 ** Math.floor(Math.log10(step));
    return power * [1, 2, 5, 10].find((f) => f * power >= step);
  };
  const bytes = (v) => (Math.abs(v) >= 1e9 ? `${+(v / 1e9).toFixed(6)} GB` : Math.abs(v) >= 1e6 ? `${+(v / 1e6).toFixed(4)} MB` : Math.abs(v) >= 1e3 ? `${+(v / 1e3).toFixed(3)} kB` : `${Math.round(v)} B`);
  const seconds = (v, step) => `${v.toFixed(Math.max(0, Math.ceil(-Math.log10(step))))} s`;

  const plot = (label, marks) => {
    const box = document.createElement("div");
    box.className = "sequence";
    const head = document.createElement("h3");
    head.textContent = label;
    const readout = document.createElement("span");
    readout.className = "readout";
    head.append(readout);
    const canvas = document.createElement("canvas");
    box.append(head, canvas);
    document.getElementById("sequences").append(box);
    const LEFT = 76;
    const BOTTOM = 24;
    const HEIGHT = 460;
    const end = marks.n ? marks.t[marks.n - 1] : 1;
    let top = 0;
    // The receive window is often far above the data: the axis follows the data.
    for (let i = 0; i < marks.n; i++) if (marks.kind[i] <= 1 && marks.to[i] > top) top = marks.to[i];
    const whole = { x0: 0, x1: end || 1, y0: 0, y1: (top || 1) * 1.04 };
    let view = { ...whole };
    let drag = null;
    let width = 0;

    const x = (t) => LEFT + ((t - view.x0) / (view.x1 - view.x0)) * (width - LEFT);
    const y = (s) => (1 - (s - view.y0) / (view.y1 - view.y0)) * (HEIGHT - BOTTOM);
    const timeAt = (px) => view.x0 + ((px - LEFT) / (width - LEFT)) * (view.x1 - view.x0);
    const byteAt = (py) => view.y0 + (1 - py / (HEIGHT - BOTTOM)) * (view.y1 - view.y0);

    const draw = () => {
      const px = devicePixelRatio;
      width = box.clientWidth;
      canvas.width = width * px;
      canvas.height = HEIGHT * px;
      canvas.style.width = `${width}px`;
      canvas.style.height = `${HEIGHT}px`;
      const c = canvas.getContext("2d");
      c.scale(px, px);
      c.font = "12px system-ui, sans-serif";
      c.fillStyle = ink("--faint");
      c.strokeStyle = ink("--rule");
      c.lineWidth = 1;
      const stepX = round(((view.x1 - view.x0) / width) * 110);
      c.textAlign = "center";
      for (let t = Math.ceil(view.x0 / stepX) * stepX; t <= view.x1; t += stepX) {
        c.beginPath(); c.moveTo(x(t), 0); c.lineTo(x(t), HEIGHT - BOTTOM); c.stroke();
        c.fillText(seconds(t, stepX), x(t), HEIGHT - 7);
      }
      const stepY = round(((view.y1 - view.y0) / HEIGHT) * 50);
      c.textAlign = "right";
      for (let s = Math.ceil(view.y0 / stepY) * stepY; s <= view.y1; s += stepY) {
        c.beginPath(); c.moveTo(LEFT, y(s)); c.lineTo(width, y(s)); c.stroke();
        c.fillText(bytes(s), LEFT - 6, y(s) + 4);
      }
      c.save();
      c.beginPath(); c.rect(LEFT, 0, width - LEFT, HEIGHT - BOTTOM); c.clip();
      const palette = colours();
      const first = Math.max(0, after(marks.t, view.x0) - 1);
      const last = Math.min(marks.n, after(marks.t, view.x1) + 1);
      // Acknowledgments and windows are steps: each is valid until the next.
      for (const k of [3, 2]) {
        c.strokeStyle = palette[KINDS[k]];
        c.lineWidth = 1.3;
        c.beginPath();
        let i = first;
        while (i > 0 && marks.kind[i] !== k) i--;
        let level = null;
        let column = -1;
        for (; i < last; i++) {
          if (marks.kind[i] !== k) continue;
          const px1 = x(marks.t[i]);
          const py1 = y(marks.to[i]);
          if (level === null) c.moveTo(Math.max(px1, LEFT), py1);
          else if (Math.floor(px1 * 2) !== column) { c.lineTo(px1, level); c.lineTo(px1, py1); column = Math.floor(px1 * 2); }
          level = py1;
        }
        if (level !== null) c.lineTo(width, level);
        c.stroke();
      }
      // Bars: data, retransmissions, selective acknowledgments; of those on the same pixels, one is drawn. Zoomed out,
      // retransmissions would paint over the whole line: they are drawn at the bottom, and in place only where that is
      // away from the newest data.
      const ticks = (last - first) < 4000;
      const foot = HEIGHT - BOTTOM;
      for (const k of [0, 4, 1]) {
        c.strokeStyle = palette[KINDS[k]];
        c.lineWidth = k === 1 ? (ticks ? 2.4 : 1) : 1.4;
        c.beginPath();
        let column = -1;
        let low = 0;
        let high = 0;
        let newest = 0;
        let marked = -1;
        for (let i = first; i < last; i++) {
          if (marks.kind[i] === 0 && marks.to[i] > newest) newest = marks.to[i];
          if (marks.kind[i] !== k) continue;
          const px1 = x(marks.t[i]);
          const a = y(marks.from[i]);
          const b = Math.min(y(marks.to[i]), a - (k === 1 ? 3 : 0.7));
          const here = Math.floor(px1 * 2);
          if (k === 1 && !ticks) {
            if (here !== marked) { c.moveTo(px1, foot); c.lineTo(px1, foot - 9); marked = here; }
            if (b - y(newest) < 5) continue;
          }
          if (here === column && a <= low + 0.5 && b >= high - 0.5) continue;
          if (here !== column) { column = here; low = a; high = b; } else { low = Math.max(low, a); high = Math.min(high, b); }
          c.moveTo(px1, a);
          c.lineTo(px1, b);
          if (ticks && k !== 4) {
            c.moveTo(px1 - 2.5, b); c.lineTo(px1 + 2.5, b);
            c.moveTo(px1 - 2.5, a); c.lineTo(px1 + 2.5, a);
          }
        }
        c.stroke();
      }
      c.restore();
      if (drag) {
        c.fillStyle = ink("--ink");
        c.globalAlpha = 0.12;
        c.fillRect(drag.x0, drag.y0, drag.x1 - drag.x0, drag.y1 - drag.y0);
        c.globalAlpha = 1;
      }
      root.dataset.sequences = String(document.querySelectorAll(".sequence canvas").length);
    };
    let waiting = false;
    const redraw = () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => { waiting = false; draw(); });
    };
    const clamp = () => {
      view.x0 = Math.max(whole.x0, view.x0);
      view.x1 = Math.min(whole.x1, Math.max(view.x1, view.x0 + 1e-6));
    };
    // Fit the vertical axis to the bytes in the visible time.
    const follow = () => {
      let low = Infinity;
      let high = -Infinity;
      const stop = after(marks.t, view.x1);
      for (let i = after(marks.t, view.x0); i < stop; i++) {
        if (marks.kind[i] === 3) continue;
        if (marks.from[i] < low) low = marks.from[i];
        if (marks.to[i] > high) high = marks.to[i];
      }
      if (high > low) { const room = (high - low) * 0.05 + 1; view.y0 = low - room; view.y1 = high + room; }
    };
    const place = (e) => { const r = canvas.getBoundingClientRect(); return [e.clientX - r.left, e.clientY - r.top]; };
    canvas.addEventListener("mousedown", (e) => { const [a, b] = place(e); drag = { x0: a, y0: b, x1: a, y1: b }; });
    addEventListener("mousemove", (e) => {
      const [a, b] = place(e);
      if (drag) { drag.x1 = a; drag.y1 = b; redraw(); return; }
      if (e.target !== canvas) return;
      const t = timeAt(a);
      const s = byteAt(b);
      let best = null;
      let least = 14;
      const near = (12 / (width - LEFT)) * (view.x1 - view.x0);
      const stop = after(marks.t, t + near);
      for (let i = after(marks.t, t - near); i < stop; i++) {
        const dy = s < marks.from[i] ? y(marks.from[i]) - b : s > marks.to[i] ? b - y(marks.to[i]) : 0;
        const d = Math.hypot(x(marks.t[i]) - a, dy);
        if (d < least) { least = d; best = i; }
      }
      readout.textContent = best === null ? `${t.toFixed(6)} s, ${bytes(s)}` : `${marks.t[best].toFixed(6)} s: ${NAMES[KINDS[marks.kind[best]]]}, ${marks.kind[best] === 2 || marks.kind[best] === 3 ? marks.to[best] : `${marks.from[best]}–${marks.to[best]} (${marks.to[best] - marks.from[best]} bytes)`}`;
    });
    addEventListener("mouseup", () => {
      if (!drag) return;
      const d = drag;
      drag = null;
      const [x0, x1] = [Math.min(d.x0, d.x1), Math.max(d.x0, d.x1)];
      const [y0, y1] = [Math.min(d.y0, d.y1), Math.max(d.y0, d.y1)];
      if (x1 - x0 > 4) {
        const next = { x0: timeAt(x0), x1: timeAt(x1), y0: byteAt(y1), y1: byteAt(y0) };
        const flat = y1 - y0 < 12;
        view = flat ? { ...view, x0: next.x0, x1: next.x1 } : next;
        clamp();
        if (flat) follow();
      }
      redraw();
    });
    canvas.addEventListener("dblclick", () => { view = { ...whole }; redraw(); });
    canvas.addEventListener("wheel", (e) => {
      e.preventDefault();
      const [a, b] = place(e);
      const f = 1.2 ** Math.sign(e.deltaY);
      const [t, s] = [timeAt(a), byteAt(b)];
      view = { x0: t - (t - view.x0) * f, x1: t + (view.x1 - t) * f, y0: s - (s - view.y0) * f, y1: s + (view.y1 - s) * f };
      clamp();
      redraw();
    }, { passive: false });
    new ResizeObserver(redraw).observe(box);
    new MutationObserver(redraw).observe(root, { attributes: true, attributeFilter: ["class"] });
    // `#sequence=FROM,TO` in the address opens the page at an interval in seconds, for links to a moment.
    const asked = /sequence=([0-9.]+),([0-9.]+)/.exec(location.hash);
    if (asked) { view.x0 = +asked[1]; view.x1 = +asked[2]; clamp(); follow(); }
    draw();
  };

  const legend = document.getElementById("sequence-legend");
  for (const k of KINDS) {
    const item = document.createElement("span");
    const stroke = document.createElement("i");
    stroke.className = "stroke";
    const paint = () => { stroke.style.borderColor = colours()[k]; };
    paint();
    new MutationObserver(paint).observe(root, { attributes: true, attributeFilter: ["class"] });
    item.append(stroke, NAMES[k]);
    legend.append(item);
  }
  (async () => {
    for (const { label, n, packed } of JSON.parse(source.textContent)) plot(label, read(await unpack(packed), n));
  })().catch((e) => { root.dataset.error = String(e); });
})();
