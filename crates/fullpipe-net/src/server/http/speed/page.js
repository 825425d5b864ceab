"use strict";
// A speed test with the server's own resources: GET /download for data, HEAD / for RTTs, GET /transfer/ID for the sending socket.
// Text from the server is only set as text content. The secret stays in this page's memory.
(() => {
  const byId = (id) => document.getElementById(id);
  const SIDES = ["a", "b"];
  const PING_EVERY_MS = 100;
  const POLL_EVERY_MS = 300;
  // Pause between downloads for queues to drain.
  const REST_MS = 700;
  const BIN_S = 0.5;
  const IDLE_PINGS = 12;

  let stop = null; // stops the running test
  let runs = []; // finished and running downloads: { side, at: [[s, bytes]], pings: [[s, ms]], … }
  let idle = [];
  let cut = null; // seconds after which the server or network ended a download

  const headers = () => {
    const secret = byId("secret").value;
    return secret ? { Authorization: `Bearer ${secret}` } : {};
  };
  const options = (signal, method = "GET") => ({ method, headers: headers(), cache: "no-store", credentials: "omit", signal });
  const sleep = (ms, signal) => new Promise((done, fail) => {
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", () => { clearTimeout(timer); fail(new DOMException("", "AbortError")); }, { once: true });
  });
  class Refused extends Error {
    constructor(status, words) { super(words); this.status = status; }
  }
  const answered = async (response) => {
    if (response.ok) return response;
    if (response.status === 401) {
      byId("secret-label").hidden = false;
      byId("secret").focus();
      throw new Refused(401, byId("secret").value ? "Wrong secret." : "This server requires a secret. Enter it and start again.");
    }
    throw new Refused(response.status, `Server error: ${(await response.text()).trim()}`);
  };

  const quantile = (values, q) => {
    if (!values.length) return null;
    const sorted = [...values].sort((x, y) => x - y);
    const at = (sorted.length - 1) * q;
    const low = Math.floor(at);
    return sorted[low] + (sorted[Math.min(low + 1, sorted.length - 1)] - sorted[low]) * (at - low);
  };
  const median = (values) => quantile(values, 0.5);
  // Round trips per minute at the mean of the fastest 95 % (draft-ietf-ippm-responsiveness-08 section 4.3).
  const responsiveness = (times) => {
    // The tolerance keeps 19 of 20, whatever the rounding of 0.95.
    const kept = [...times].sort((x, y) => x - y).slice(0, Math.ceil(times.length * 0.95 - 1e-9));
    return kept.length ? 60000 / (kept.reduce((sum, ms) => sum + ms, 0) / kept.length) : null;
  };
  // The draft's categories.
  const rating = (rpm) => (rpm >= 6000 ? "excellent" : rpm >= 1000 ? "good" : rpm >= 300 ? "fair" : "poor");
  const figure = (v) => {
    if (v === null || v === undefined || !Number.isFinite(v)) return "–";
    const a = Math.abs(v);
    return a >= 100 ? v.toFixed(0) : a >= 10 ? v.toFixed(1) : a >= 1 ? v.toFixed(2) : a === 0 ? "0" : v.toPrecision(2);
  };

  // The time from request to first response byte as measured by the browser's network stack: without connection set-up and script
  // delays. The URL identifies the ping.
  let number = 0;
  const waiting = new Map();
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      const id = /[?&]ping=(\d+)$/.exec(entry.name)?.[1];
      const taken = waiting.get(id);
      waiting.delete(id);
      if (taken && entry.requestStart > 0 && entry.responseStart > entry.requestStart) {
        taken(entry.requestStart, entry.responseStart - entry.requestStart);
      }
    }
  }).observe({ type: "resource" });
  const ping = async (signal, taken) => {
    const id = String(++number);
    waiting.set(id, taken);
    await answered(await fetch(`/?ping=${id}`, options(signal, "HEAD")));
    performance.clearResourceTimings();
  };

  const bytesOf = (run) => (run.at.length ? run.at[run.at.length - 1][1] : 0);
  const mbit = (run) => {
    const last = run.at[run.at.length - 1];
    return last && last[0] > 0 ? (last[1] * 8) / last[0] / 1e6 : null;
  };
  const retransmitted = (run) => {
    const s = run.socket;
    if (!s || !s.mss || !s.bytes_acked) return null;
    return (s.retransmits / (s.bytes_acked / s.mss + s.retransmits)) * 100;
  };

  // Downloads with controller `cc` for `seconds` from the first byte.
  const download = async (side, cc, seconds, signal, most) => {
    const mine = new AbortController();
    const over = () => mine.abort();
    signal.addEventListener("abort", over, { once: true });
    const run = { side, at: [], pings: [], socket: null, controller: cc };
    const size = most ?? 1e12;
    try {
      const response = await fetch(`/download?size=${size}&cc=${encodeURIComponent(cc)}`, options(mine.signal));
      if (response.status === 400 && most === undefined) {
        // A server with a size limit reports it.
        const words = await response.text();
        const bound = /^size: at most (\d+) bytes/.exec(words)?.[1];
        if (bound === undefined) throw new Refused(400, `Server error: ${words.trim()}`);
        return await download(side, cc, seconds, signal, bound);
      }
      await answered(response);
      run.controller = response.headers.get("X-Fullpipe-Controller") || cc;
      const id = response.headers.get("X-Fullpipe-Transfer") ?? "";
      runs.push(run);
      const began = performance.now();
      const since = (t) => (t - began) / 1000;
      let running = true;
      const pings = async () => {
        while (running) {
          ping(mine.signal, (at, ms) => { if (running) run.pings.push([since(at), ms]); }).catch(() => {});
          await sleep(PING_EVERY_MS, mine.signal);
        }
      };
      const polls = async () => {
        while (running) {
          await sleep(POLL_EVERY_MS, mine.signal);
          const response = await fetch(`/transfer/${id}`, options(mine.signal));
          if (response.ok) run.socket = (await response.json()).socket;
          show();
        }
      };
      const beside = [pings(), polls()].map((p) => p.catch(() => {}));
      const timer = setTimeout(over, seconds * 1000);
      const reader = response.body.getReader();
      let bytes = 0;
      try {
        for (;;) {
          const { done, value } = await reader.read();
          if (done) break;
          bytes += value.byteLength;
          const t = since(performance.now());
          const last = run.at[run.at.length - 1];
          // A point every 50 ms is enough to draw.
          if (run.at.length > 1 && t - run.at[run.at.length - 2][0] < 0.05) { last[0] = t; last[1] = bytes; } else run.at.push([t, bytes]);
        }
      } catch (e) {
        // Received data counts even if the server ended the download early.
        if (signal.aborted || (!mine.signal.aborted && since(performance.now()) < 1)) throw e;
        if (!mine.signal.aborted) cut = since(performance.now());
      } finally {
        running = false;
        clearTimeout(timer);
        mine.abort();
        await Promise.all(beside);
      }
      if (!bytes) throw new Error("No data received in time.");
      return run;
    } finally {
      signal.removeEventListener("abort", over);
    }
  };

  const SVG = "http://www.w3.org/2000/svg";
  const put = (parent, tag, attributes, text) => {
    const e = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) e.setAttribute(name, value);
    if (text !== undefined) e.textContent = text;
    parent.append(e);
    return e;
  };
  const niceTop = (v) => {
    const size = 10 ** Math.floor(Math.log10(v));
    return [1, 2, 3, 4, 6, 8, 10].map((m) => m * size).find((t) => t >= v * 1.02) ?? 10 * size;
  };
  const plot = (svg, lines, seconds, level) => {
    const width = svg.clientWidth || 400;
    const height = svg.clientHeight || 200;
    const [left, right, top, bottom] = [44, 12, 8, 22];
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.replaceChildren();
    const values = lines.flatMap((l) => l.points.map((p) => p[1])).concat(level === null ? [] : [level]);
    const high = niceTop(Math.max(...values, 0.001));
    const x = (t) => left + (Math.min(t, seconds) / seconds) * (width - left - right);
    const y = (v) => height - bottom - (v / high) * (height - top - bottom);
    for (const part of [0, 0.5, 1]) {
      put(svg, "line", { class: "rule", x1: left, x2: width - right, y1: y(high * part), y2: y(high * part) });
      put(svg, "text", { x: left - 6, y: y(high * part) + 4, "text-anchor": "end" }, String(+(high * part).toPrecision(3)));
      const t = +(seconds * part).toFixed(1);
      put(svg, "text", { x: x(t), y: height - 5, "text-anchor": part === 1 ? "end" : part === 0 ? "start" : "middle" }, `${t} s`);
    }
    if (level !== null) put(svg, "line", { class: "idle", x1: left, x2: width - right, y1: y(level), y2: y(level) });
    for (const l of lines) {
      if (l.points.length > 1) put(svg, "polyline", { class: l.side, points: l.points.map(([t, v]) => `${x(t).toFixed(1)},${y(v).toFixed(1)}`).join(" ") });
    }
  };

  // Rate in each interval of BIN_S seconds.
  const rates = (run) => {
    const points = [];
    let from = [0, 0];
    for (const [t, bytes] of run.at) {
      if (t - from[0] < BIN_S) continue;
      points.push([(t + from[0]) / 2, ((bytes - from[1]) * 8) / (t - from[0]) / 1e6]);
      from = [t, bytes];
    }
    const [t, bytes] = run.at[run.at.length - 1] ?? from;
    if (t - from[0] > BIN_S / 2) points.push([(t + from[0]) / 2, ((bytes - from[1]) * 8) / (t - from[0]) / 1e6]);
    return points;
  };

  const seconds = () => Math.min(60, Math.max(1, Number(byId("seconds").value) || 5));
  const of = (side) => runs.filter((r) => r.side === side);
  const show = () => {
    const level = median(idle);
    for (const side of SIDES) {
      const own = of(side);
      const pings = own.flatMap((r) => r.pings.map((p) => p[1]));
      const put = (name, value) => { byId(`${name}-${side}`).textContent = value; };
      put("goodput", figure(median(own.map(mbit).filter((v) => v !== null))));
      put("rpm", figure(responsiveness(pings)));
      put("loaded", figure(median(pings)));
      put("worst", figure(quantile(pings, 0.95)));
      put("again", figure(median(own.map(retransmitted).filter((v) => v !== null))));
    }
    byId("idle").textContent = figure(level);
    plot(byId("plot-rate"), runs.map((r) => ({ side: r.side, points: rates(r) })), seconds(), null);
    plot(byId("plot-rtt"), runs.map((r) => ({ side: r.side, points: [...r.pings].sort((p, q) => p[0] - q[0]) })), seconds(), level);
  };
  const names = () => {
    for (const side of SIDES) for (const where of ["name", "legend"]) byId(`${where}-${side}`).textContent = byId(side).value || "–";
    const host = location.hostname.replace(/^\[|\]$/g, "");
    const port = location.port && location.port !== "5201" ? ` -p ${location.port}` : "";
    const compared = `${host}${port} --compare ${byId("a").value},${byId("b").value}`;
    byId("command").textContent = `fullpipe test ${compared} -R`;
    byId("rpm-command").textContent = `fullpipe rpm ${compared} --insecure`;
  };

  const verdict = () => {
    const [a, b] = SIDES.map((side) => ({ name: byId(side).value, rates: of(side).map(mbit), pings: of(side).flatMap((r) => r.pings.map((p) => p[1])) }));
    const [fast, slow] = median(a.rates) >= median(b.rates) ? [a, b] : [b, a];
    const ratio = median(fast.rates) / median(slow.rates);
    const apart = Math.min(...fast.rates) > Math.max(...slow.rates) && ratio >= 1.05;
    const rates = `${figure(median(fast.rates))} against ${figure(median(slow.rates))} Mbit/s`;
    const times = ratio >= 2 ? `${ratio.toFixed(ratio >= 10 ? 0 : 1)} times as fast as ${slow.name}` : `${((ratio - 1) * 100).toFixed(0)} % faster than ${slow.name}`;
    let words = apart ? `Here ${fast.name} is ${times}: ${rates}.` : `No difference in ${byId("rounds").value} rounds: ${fast.name} ${figure(median(fast.rates))}, ${slow.name} ${figure(median(slow.rates))} Mbit/s.`;
    if (fast.pings.length && slow.pings.length) {
      const [own, other] = [fast, slow].map(({ name, pings }) => {
        const rpm = responsiveness(pings);
        return `${name} ${figure(median(pings))} ms (${figure(rpm)} RPM, ${rating(rpm)})`;
      });
      words += ` RTT under load: ${own}, ${other}.`;
    }
    return words;
  };

  const showVerdict = (words, bad = false) => {
    byId("verdict").textContent = words;
    byId("verdict").classList.toggle("bad", bad);
  };
  const state = (words) => { byId("state").textContent = words; };

  const test = async (signal) => {
    runs = [];
    idle = [];
    cut = null;
showVerdict("");
    show();
    state("idle RTT …");
    for (let i = 0; i < IDLE_PINGS; i++) {
      await ping(signal, (_, ms) => idle.push(ms));
      await sleep(30, signal);
    }
    show();
    const rounds = Math.min(20, Math.max(1, Math.floor(Number(byId("rounds").value)) || 1));
    for (let round = 0; round < rounds; round++) {
      for (const side of round % 2 ? ["b", "a"] : SIDES) {
        const cc = byId(side).value;
        state(`round ${round + 1} of ${rounds}: ${cc} …`);
        await download(side, cc, seconds(), signal);
        show();
        await sleep(REST_MS, signal);
      }
    }
showVerdict(verdict());
    const ended = cut === null ? "" : `; the server or the network ended a download after ${figure(cut)} s`;
    state(`${rounds} ${rounds === 1 ? "round" : "rounds"} of ${seconds()} s each${ended}`);
  };

  byId("form").addEventListener("submit", async (e) => {
    e.preventDefault();
    if (stop) { stop.abort(); return; }
    stop = new AbortController();
    document.documentElement.dataset.test = "running";
    byId("go").textContent = "Stop";
    names();
    const inputs = [...document.querySelectorAll("input")];
    for (const input of inputs) input.readOnly = true;
    let end = "done";
    try {
      await test(stop.signal);
    } catch (error) {
      end = "failed";
      const words = error.name === "AbortError" ? "Stopped." : error instanceof Refused ? error.message : `The transfer failed: ${error.message}`;
  showVerdict(words, error.name !== "AbortError");
      state("");
    }
    for (const input of inputs) input.readOnly = false;
    byId("go").textContent = "Start";
    stop = null;
    document.documentElement.dataset.test = end;
  });
  for (const side of SIDES) byId(side).addEventListener("input", names);
  addEventListener("resize", show);
  names();
  show();
})();
