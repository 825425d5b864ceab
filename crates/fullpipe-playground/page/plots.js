// Plots over time, the operating plane, and the picture of the path: all on canvas.

// Okabe and Ito's hues, distinct with any kind of colour vision; the same as in reports.
const HUES = {light: {bbr: "#0072b2", bbr3: "#22303c", cubic: "#d55e00", hybla: "#009e73", reno: "#82247b", mine: "#7a4f1d"},
  dark: {bbr: "#4aa8e8", bbr3: "#f2f2f2", cubic: "#ff7f2a", hybla: "#2cc79a", reno: "#c77fc4", mine: "#c49a6c"}};
const SPARE = {light: ["#3f9fd0", "#b07d00", "#5f6670"], dark: ["#8fd3ff", "#ffe07a", "#9aa4ae"]};
const DASHES = [[], [6, 3], [2, 3], [9, 3, 2, 3]];
const darkQuery = matchMedia("(prefers-color-scheme: dark)");
const theme = () => darkQuery.matches ? "dark" : "light";
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function styleOf(flows, i) {
  const hues = HUES[theme()];
  const cc = flows[i].cc.split(":")[0];
  const same = flows.slice(0, i).filter((f) => f.cc.split(":")[0] === cc).length;
  return {color: hues[cc] || SPARE[theme()][i % 3], dash: DASHES[same % DASHES.length]};
}

const column = (series, name) => {
  const found = series && series.columns && series.columns.find((c) => c.name === name);
  return found ? found.values : null;
};

// The last sample at or before t.
function indexAt(times, t) {
  let lo = 0, hi = times.length;
  while (lo < hi) { const mid = (lo + hi) >> 1; if (times[mid] <= t) lo = mid + 1; else hi = mid; }
  return lo - 1;
}

function prepare(canvas, height) {
  const ratio = Math.min(2, window.devicePixelRatio || 1);
  const width = canvas.clientWidth || 320;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = height + "px";
  }
  const g = canvas.getContext("2d");
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.clearRect(0, 0, width, height);
  g.font = "12px system-ui, sans-serif";
  return {g, width, height};
}

function niceStep(span, most) {
  const raw = span / most, power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw) || raw;
}

const amount = (v) => v === null || !Number.isFinite(v) ? "–" : Math.abs(v) >= 100 ? v.toFixed(0) : Math.abs(v) >= 10 ? v.toFixed(1) : v.toFixed(2);

// Curves are drawn once to a backing canvas and the cursor over it, so that playing costs little.
class TimePlot {
  constructor(title, unit) {
    this.title = title;
    this.unit = unit;
    this.figure = document.createElement("figure");
    const caption = document.createElement("figcaption");
    this.name = document.createElement("span");
    this.name.textContent = `${title}${unit ? ", " + unit : ""}`;
    this.read = document.createElement("span");
    caption.append(this.name, this.read);
    this.canvas = document.createElement("canvas");
    this.canvas.setAttribute("role", "img");
    this.figure.append(caption, this.canvas);
    this.back = document.createElement("canvas");
    this.curves = [];
    this.lines = [];
    this.canvas.addEventListener("pointerdown", (e) => this.seek(e));
    this.canvas.addEventListener("pointermove", (e) => { if (e.buttons) this.seek(e); });
  }
  seek(e) {
    const box = this.canvas.getBoundingClientRect();
    const share = (e.clientX - box.left - this.left) / (box.width - this.left - 8);
    if (this.onSeek) this.onSeek(Math.min(1, Math.max(0, share)) * this.end);
  }
  set(curves, lines, end) {
    this.curves = curves;
    this.lines = lines;
    this.end = end;
    this.stale = true;
    const parts = curves.filter((c) => !c.ghost).map((c) => `${c.label} ${amount(lastOf(c.values))}`);
    this.canvas.setAttribute("aria-label", `${this.title} over ${end} seconds, ${this.unit}. At the end: ${parts.join(", ")}.`);
  }
  render() {
    const height = 150;
    const {g, width} = prepare(this.canvas, height);
    if (this.stale || this.back.width !== this.canvas.width) {
      this.drawBack(width, height);
      this.stale = false;
    }
    g.setTransform(1, 0, 0, 1, 0, 0);
    g.drawImage(this.back, 0, 0);
  }
  drawBack(width, height) {
    this.back.width = this.canvas.width;
    this.back.height = this.canvas.height;
    const g = this.back.getContext("2d");
    const ratio = this.canvas.width / width;
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.font = "12px system-ui, sans-serif";
    const left = this.left = 44, right = 8, top = 6, bottom = 18;
    let most = 0;
    for (const c of this.curves) for (const v of c.values) if (v > most && Number.isFinite(v)) most = v;
    for (const l of this.lines) {
      // Not Math.max(...): a run may have more samples than a call may have arguments.
      const value = l.reference ? l.values.reduce((a, b) => b > a ? b : a, -Infinity) : l.value;
      if (Number.isFinite(value) && value < most * 3) most = Math.max(most, value);
    }
    most = most * 1.06 || 1;
    const x = this.x = (t) => left + (width - left - right) * t / this.end;
    const y = (v) => height - bottom - (height - top - bottom) * v / most;
    g.strokeStyle = css("--line");
    g.fillStyle = css("--soft");
    g.lineWidth = 1;
    g.textAlign = "right";
    const step = niceStep(most, 4);
    for (let v = 0; v <= most; v += step) {
      g.beginPath(); g.moveTo(left, y(v)); g.lineTo(width - right, y(v)); g.stroke();
      g.fillText(String(Number(v.toPrecision(3))), left - 4, y(v) + 4);
    }
    g.textAlign = "center";
    const steps = niceStep(this.end, Math.max(3, width / 90));
    for (let t = 0; t <= this.end + 1e-9; t += steps) g.fillText(String(Number(t.toPrecision(3))) + (t + steps > this.end ? " s" : ""), Math.min(width - 14, x(t)), height - 4);
    const constant = this.lines.filter((l) => l.value <= most);
    g.strokeStyle = css("--soft");
    g.setLineDash([4, 4]);
    for (const line of constant) { g.beginPath(); g.moveTo(left, y(line.value)); g.lineTo(width - right, y(line.value)); g.stroke(); }
    for (const c of [...this.lines.filter((l) => l.reference), ...this.curves]) {
      g.strokeStyle = c.color; g.globalAlpha = c.ghost ? 0.35 : 1; g.lineWidth = c.ghost ? 1 : 1.6; g.setLineDash(c.dash || []);
      g.beginPath();
      // At most two points a pixel: the least and the most of each.
      const n = c.times.length, perPixel = Math.max(1, Math.floor(n / (width * 2)));
      let open = false;
      for (let i = 0; i < n; i += perPixel) {
        let v = c.values[i];
        for (let j = i + 1; j < Math.min(n, i + perPixel); j++) if (c.values[j] > v || v === null) v = c.values[j];
        if (v === null || !Number.isFinite(v)) { open = false; continue; }
        if (open) g.lineTo(x(c.times[i]), y(v)); else { g.moveTo(x(c.times[i]), y(v)); open = true; }
      }
      g.stroke();
      g.setLineDash([]); g.globalAlpha = 1;
    }
    // Names of the lines last, so that no curve hides them.
    for (const line of this.lines) {
      const value = line.reference ? lastOf(line.values) : line.value;
      if (!(value <= most)) continue;
      const wide = g.measureText(line.label).width, base = Math.max(14, y(value) - 3);
      g.fillStyle = css("--card"); g.globalAlpha = 0.8; g.fillRect(width - right - wide - 4, base - 11, wide + 4, 14); g.globalAlpha = 1;
      g.textAlign = "right"; g.fillStyle = css("--soft"); g.fillText(line.label, width - right - 2, base);
    }
  }
  cursor(t) {
    if (!this.x) return;
    this.render();
    const g = this.canvas.getContext("2d");
    const ratio = this.canvas.width / (this.canvas.clientWidth || 320);
    g.setTransform(ratio, 0, 0, ratio, 0, 0);
    g.strokeStyle = css("--accent");
    g.beginPath(); g.moveTo(this.x(t), 4); g.lineTo(this.x(t), 132); g.stroke();
    const shown = this.curves.filter((c) => !c.ghost).slice(0, 4);
    const at = shown.map((c) => (shown.length > 1 ? c.label + " " : "") + amount(c.values[indexAt(c.times, t)] ?? null));
    this.read.textContent = at.join(" · ");
  }
}

const lastOf = (values) => { for (let i = values.length - 1; i >= 0; i--) if (Number.isFinite(values[i]) && values[i] !== null) return values[i]; return null; };

// Inflight against RTT and delivery rate, as figure 1 of the paper: the operating point of each flow, with its last two seconds.
class Plane {
  constructor() {
    this.figure = document.createElement("figure");
    const caption = document.createElement("figcaption");
    caption.textContent = "Operating point: RTT in ms (upper) and delivery rate in Mbit/s (lower) against inflight";
    this.canvas = document.createElement("canvas");
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", "Operating points of the flows against inflight; the vertical lines are one BDP, and one BDP plus the buffer");
    this.figure.append(caption, this.canvas);
  }
  set(run) { this.run = run; }
  cursor(t) {
    const {g, width, height} = prepare(this.canvas, 220);
    const run = this.run;
    if (!run || !run.path.bdp_bytes) return;
    const link = varyingRate(run), k0 = link ? indexAt(link.times, t) : -1;
    const rateNow = link && link.values[Math.max(0, k0)] || run.path.rate_bps;
    const bdp = run.path.bdp_bytes * rateNow / run.path.rate_bps, full = bdp + (run.path.buffer_bytes || bdp);
    const most = full * 1.3, left = 60, right = 8, middle = height / 2;
    const x = (bytes) => left + (width - left - right) * Math.min(1, bytes / most);
    const rtt0 = run.path.base_rtt_ms || 1, rttMax = rtt0 * full / bdp * 1.15;
    const yRtt = (ms) => middle - 12 - (middle - 24) * Math.min(1, ms / rttMax);
    const yRate = (bps) => height - 18 - (middle - 30) * Math.min(1.1, bps / rateNow);
    g.strokeStyle = css("--soft"); g.fillStyle = css("--soft"); g.lineWidth = 1;
    g.setLineDash([4, 4]);
    for (const [bytes, label] of [[bdp, "BDP"], [full, "BDP + buffer"]]) {
      g.beginPath(); g.moveTo(x(bytes), 6); g.lineTo(x(bytes), height - 16); g.stroke();
      g.textAlign = bytes === bdp ? "left" : "right"; g.fillText(label, x(bytes) + (bytes === bdp ? 4 : -4), bytes === bdp && x(full) - x(bdp) < 120 ? 28 : 14);
    }
    g.setLineDash([]);
    g.strokeStyle = css("--line"); g.lineWidth = 3;
    g.beginPath(); g.moveTo(x(0), yRtt(rtt0)); g.lineTo(x(bdp), yRtt(rtt0)); g.lineTo(x(full), yRtt(rtt0 * full / bdp)); g.stroke();
    g.beginPath(); g.moveTo(x(0), yRate(0)); g.lineTo(x(bdp), yRate(rateNow)); g.lineTo(x(most), yRate(rateNow)); g.stroke();
    g.textAlign = "right"; g.fillText(amount(rtt0) + " ms", left - 4, yRtt(rtt0) + 4);
    g.fillText(amount(rateNow / 1e6), left - 4, yRate(rateNow) + 4);
    run.flows.forEach((flow, i) => {
      const times = flow.series.t_s || [];
      const inflight = column(flow.series, "inflight_bytes"), rtt = column(flow.series, "rtt_ms"), rate = column(flow.series, "delivery_rate_bps");
      const to = indexAt(times, t), from = Math.max(0, indexAt(times, t - 2));
      if (to < 0 || !inflight) return;
      g.fillStyle = styleOf(run.flows, i).color;
      const step = Math.max(1, Math.floor((to - from) / 60));
      for (let k = from; k <= to; k += step) {
        g.globalAlpha = k + step > to ? 1 : 0.12 + 0.3 * (k - from) / Math.max(1, to - from);
        const size = k + step > to ? 5 : 2;
        for (const [v, y] of [[rtt && rtt[k], yRtt], [rate && rate[k], yRate]]) {
          if (v === null || !Number.isFinite(v)) continue;
          g.beginPath(); g.arc(x(inflight[k] || 0), y(v), size, 0, 7); g.fill();
        }
      }
      g.globalAlpha = 1;
    });
  }
}

// Senders, the bottleneck with its queue, the receiver; at slow speed the packets of each flow, in its colour.
function drawPicture(canvas, run, packets, t, slow) {
  const narrow = (canvas.clientWidth || 320) < 520;
  const {g, width, height} = prepare(canvas, narrow ? 210 : 190);
  const ink = css("--fg"), soft = css("--soft"), line = css("--line");
  g.lineWidth = 1.5; g.textAlign = "center"; g.textBaseline = "middle";
  const sx = narrow ? 34 : 70, qx = width * 0.42, rx = width - (narrow ? 34 : 70), my = height * 0.42;
  const qw = narrow ? 70 : 120, qh = 54;
  const flows = run ? run.flows : [];
  const senderY = (i) => flows.length === 1 ? my : 20 + (height - 76) * i / (flows.length - 1);
  flows.forEach((flow, i) => {
    const y = senderY(i);
    const {color} = styleOf(flows, i);
    g.strokeStyle = line; g.beginPath(); g.moveTo(sx + 22, y); g.lineTo(qx - qw / 2, my); g.stroke();
    g.fillStyle = color; g.beginPath(); g.arc(sx, y, 9, 0, 7); g.fill();
    g.fillStyle = ink; g.textAlign = "left"; g.font = "12px system-ui";
    g.fillText(flow.label.slice(0, narrow ? 7 : 14), sx - 14, y + 18);
  });
  g.textAlign = "center";
  g.strokeStyle = ink; g.lineWidth = 3;
  g.beginPath(); g.moveTo(qx + qw / 2, my); g.lineTo(rx - 12, my); g.stroke();
  g.lineWidth = 1; g.strokeStyle = soft; g.setLineDash([3, 4]);
  g.beginPath(); g.moveTo(rx, my + 14); g.quadraticCurveTo(width / 2, height + 18, sx + 14, height - 36); g.stroke(); g.setLineDash([]);
  g.fillStyle = ink; g.beginPath(); g.arc(rx, my, 11, 0, 7); g.fill();
  g.fillStyle = soft; g.fillText("receiver", rx, my - 24);
  g.fillText("ACKs", width / 2, height - 10);
  if (!run) return;
  const link = run.links.find((l) => l.label.startsWith("forward"));
  const times = link && link.series.t_s || [];
  const k = indexAt(times, t);
  const queue = column(link && link.series, "queue_bytes"), rate = column(link && link.series, "rate_bps");
  const limit = run.path.buffer_bytes || run.path.bdp_bytes || 1, held = k >= 0 && queue ? queue[k] || 0 : 0;
  const share = Math.min(1, held / limit);
  g.strokeStyle = ink; g.lineWidth = 2; g.strokeRect(qx - qw / 2, my - qh / 2, qw, qh);
  g.fillStyle = share > 0.85 ? css("--bad") : css("--accent"); g.globalAlpha = 0.75;
  g.fillRect(qx + qw / 2 - (qw - 3) * share, my - qh / 2 + 2, (qw - 3) * share, qh - 4); g.globalAlpha = 1;
  g.fillStyle = ink;
  g.fillText(`queue ${amount(held / 1e3)} kB`, qx, my - qh / 2 - 10);
  g.fillText(`${amount((k >= 0 && rate && rate[k] ? rate[k] : run.path.rate_bps || 0) / 1e6)} Mbit/s`, qx, my + qh / 2 + 12);
  g.fillText(`${amount(run.path.base_rtt_ms || 0)} ms RTT`, (qx + rx) / 2, my - 14);
  const drops = Object.values(link ? link.drops : {}).reduce((a, b) => a + b, 0);
  g.fillStyle = soft; g.fillText(`${drops} dropped in all`, qx, my + qh / 2 + 28);
  if (!slow || !packets.length) return;
  // A packet is in the queue until half an RTT before it arrives, then on the link.
  const oneWay = (run.path.base_rtt_ms || 1) / 2e3, shown = 0.25, bad = css("--bad");
  packets.forEach((sent, flow) => {
    const y = senderY(flow), {color} = styleOf(flows, flow);
    g.fillStyle = color;
    // Three numbers per packet: when it was sent, when it arrived, whether it is a retransmission.
    let lo = 0, hi = sent.length / 3;
    while (lo < hi) { const mid = (lo + hi) >> 1; if (sent[3 * mid] < t - 5) lo = mid + 1; else hi = mid; }
    for (let i = 3 * lo; i < sent.length && sent[i] <= t; i += 3) {
      const left = sent[i], arrived = sent[i + 1], again = sent[i + 2];
      if (Number.isNaN(arrived)) {
        const age = t - left;
        if (age < oneWay * 2 * shown + 0.02) { g.fillStyle = bad; g.fillText("×", qx - qw / 2 - 6, my + qh / 2 + age * 400); g.fillStyle = color; }
        continue;
      }
      if (arrived >= t) {
        const rest = (arrived - t) / oneWay;
        if (rest <= 1) square(g, qx + qw / 2 + (rx - 14 - qx - qw / 2) * (1 - rest), my, again);
        else { const s = Math.min(1, (t - left) / 0.004); square(g, sx + 22 + (qx - qw / 2 - sx - 22) * s, y + (my - y) * s, again); }
      } else if (t - arrived < oneWay) {
        const s = (t - arrived) / oneWay, u = 1 - s;
        g.globalAlpha = 0.7; g.beginPath();
        g.arc(u * u * rx + 2 * u * s * width / 2 + s * s * (sx + 14), u * u * (my + 14) + 2 * u * s * (height + 18) + s * s * (height - 36), 1.8, 0, 7); g.fill(); g.globalAlpha = 1;
      }
    }
  });
}

function square(g, x, y, again) {
  if (again) { g.strokeStyle = g.fillStyle; g.lineWidth = 1.5; g.strokeRect(x - 3, y - 3, 6, 6); } else g.fillRect(x - 3, y - 3, 6, 6);
}
