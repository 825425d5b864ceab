// The page: controls, playback, and what connects them to the worker.
const $ = (id) => document.getElementById(id);
const LIMIT_MS = 10000;
let setup = initialSetup();
let typed = null;          // scenario text edited by hand, or null
let outcome = null;        // {results, packets} of the scenario in `text`
let pinned = null;
let now = 0, playing = false, lastFrame = 0;
let worker = null, wasmModule = null, pending = new Map(), calls = 0, busy = null, queued = null;
let controllers = ["bbr", "bbr3", "cubic", "hybla", "reno"];
let mineText = null;

// --- worker -------------------------------------------------------------------------------------------------------------

function startWorker() {
  if (worker) worker.terminate();
  for (const p of pending.values()) {
    // Otherwise its end would restart the next worker and drop the user's controller.
    clearTimeout(p.timer);
    p.reject(new Error("stopped"));
  }
  pending = new Map();
  busy = null;
  const own = mineText === null ? "" : parts.wrapper.replace("/*MINE*/", () => mineText);
  const url = URL.createObjectURL(new Blob([parts.glue, "\n", own, "\n", parts.worker], {type: "text/javascript"}));
  return new Promise((resolve, reject) => {
    worker = new Worker(url);
    worker.onerror = (e) => { e.preventDefault(); reject(new Error(e.message || "the script has an error")); };
    worker.onmessage = ({data}) => {
      if (data.ready) { URL.revokeObjectURL(url); resolve(JSON.parse(data.controllers)); return; }
      const waiting = pending.get(data.id);
      if (!waiting) return;
      clearTimeout(waiting.timer);
      pending.delete(data.id);
      if (data.problem !== undefined) waiting.reject(JSON.parse(data.problem)); else waiting.resolve(data);
    };
    worker.postMessage({module: wasmModule});
  });
}

function ask(message) {
  const id = ++calls;
  return new Promise((resolve, reject) => {
    const timer = setTimeout(async () => {
      pending.delete(id);
      const own = mineText !== null;
      if (own) mineText = null;
      await startWorker().catch(() => {});
      reject({message: own ? "stopped after 10 seconds: your controller did not return" : "stopped after 10 seconds: the scenario is too large for a page", line: null,
        help: own ? "remove the endless loop and press “Race it against BBR” again" : "shorten it, or download it and use fullpipe run"});
    }, LIMIT_MS);
    pending.set(id, {resolve, reject, timer});
    worker.postMessage({...message, id});
  });
}

// --- running ------------------------------------------------------------------------------------------------------------

const scenarioText = () => typed ?? toToml(setup);

// One run at a time. Requests meanwhile share one run after it: `busy` and `queued` are the promises of these two.
function simulate() {
  if (busy) return queued ??= busy.then(() => { queued = null; return simulate(); });
  // startWorker() stops a run; another may have begun since.
  const current = simulateNow().finally(() => { if (busy === current) busy = null; });
  return busy = current;
}

async function simulateNow() {
  const text = scenarioText();
  if (document.activeElement !== $("toml")) $("toml").value = text;
  try {
    const answer = await ask({toml: text});
    outcome = {...JSON.parse(answer.outcome), packets: answer.packets, text};
    fillNulls(outcome);
    showProblem(null);
    const run = outcome.results.runs[0];
    $("status").textContent = `${run.flows.length} flow${run.flows.length === 1 ? "" : "s"}, ${duration()} s simulated in ${(answer.took / 1000).toFixed(2)} s`
      + (outcome.results.runs.length > 1 ? `; ${outcome.results.runs.length} runs, the first is shown` : "") + ".";
    $("time").max = duration();
    if (now > duration()) now = 0;
    show();
  } catch (problem) {
    if (problem instanceof Error && problem.message === "stopped") return;
    showProblem(problem);
  }
  remember();
}

// JSON has null where a sample has no value.
function fillNulls(all) {
  for (const run of all.results.runs) for (const part of [...run.flows, ...run.links]) {
    part.series = part.series || {t_s: [], columns: []};
    for (const c of part.series.columns || []) c.values = Float64Array.from(c.values, (v) => v === null ? NaN : v);
  }
}

function showProblem(problem) {
  const box = typed === null ? $("problem") : $("toml-problem"), other = typed === null ? $("toml-problem") : $("problem");
  other.hidden = true;
  box.hidden = !problem;
  if (!problem) return;
  const where = problem.line ? `line ${problem.line}, column ${problem.column}: ` : "";
  box.textContent = where + problem.message + (problem.help ? `\n${problem.help}` : "");
  $("status").textContent = "Not run; the last result is still shown.";
  if (problem.line && typed !== null && document.activeElement === $("run-toml")) selectLine(problem.line);
}

function selectLine(number) {
  const area = $("toml"), lines = area.value.split("\n");
  const from = lines.slice(0, number - 1).reduce((n, l) => n + l.length + 1, 0);
  area.focus();
  area.setSelectionRange(from, from + (lines[number - 1] || "").length);
}

const run0 = () => outcome && outcome.results.runs[0];
const duration = () => { const run = run0(); return run ? run.summary.duration_s + (warmup(run)) : setup.duration; };
const warmup = (run) => Math.max(0, run.flows.reduce((end, f) => Math.max(end, lastOf(f.series.t_s || []) || 0), 0) - run.summary.duration_s);

let saveTimer = 0;
function remember() {
  clearTimeout(saveTimer);
  saveTimer = setTimeout(async () => {
    const link = await toLink(state());
    try { history.replaceState(null, "", link); } catch { /* a page that may not change its address */ }
  }, 300);
}
const state = () => typed !== null ? {setup, toml: typed} : openChapter !== null && JSON.stringify(setup) === JSON.stringify(chapterSetup(openChapter)) ? {chapter: openChapter} : {setup};

// --- drawing ------------------------------------------------------------------------------------------------------------

const plots = {
  goodput: new TimePlot("Goodput", "Mbit/s"), rtt: new TimePlot("RTT", "ms"), queue: new TimePlot("Queue", "kB"),
  inflight: new TimePlot("Inflight", "kB"), bandwidth: new TimePlot("Bandwidth estimate (BtlBw)", "Mbit/s"),
  propagation: new TimePlot("Propagation estimate (RTprop)", "ms"), gain: new TimePlot("Pacing gain", ""), plane: new Plane(),
};

function curves(name, scale, run, ghost) {
  return run.flows.map((flow, i) => ({times: flow.series.t_s || [], values: scaled(column(flow.series, name), scale), label: flow.label, ghost, ...styleOf(run.flows, i)}))
    .filter((c) => c.values.length);
}
// A running mean over some tenths of a second: single samples hold a packet more or less.
function smoothed(curve, span) {
  const {times, values} = curve, out = new Float64Array(values.length);
  let from = 0, sum = 0, n = 0;
  for (let i = 0; i < values.length; i++) {
    if (Number.isFinite(values[i])) { sum += values[i]; n++; }
    while (times[i] - times[from] > span) { if (Number.isFinite(values[from])) { sum -= values[from]; n--; } from++; }
    out[i] = n ? sum / n : NaN;
  }
  return {...curve, values: out};
}
const scaled = (values, by) => values ? by === 1 ? values : values.map((v) => v * by) : [];

function show() {
  const run = run0();
  if (!run) return;
  const end = duration(), old = pinned && pinned.results.runs[0];
  const both = (name, scale) => [...(old ? curves(name, scale, old, true) : []), ...curves(name, scale, run, false)];
  // Payload's share of the rate, and the rate of a link that changes.
  const payload = (run.path.goodput_limit_bps || 0) / (run.path.rate_bps || 1);
  const link = varyingRate(run);
  const policed = typed === null && setup.policer > 0 ? [{value: setup.policer * payload, label: "policer"}] : [];
  const limit = (scale, label, value) => link ? [{...link, values: link.values.map((v) => v * scale), label, color: css("--soft"), dash: [4, 4], reference: true}] : value ? [{value, label}] : [];
  const truth = [...limit(payload / 1e6, "link", (run.path.goodput_limit_bps || 0) / 1e6), ...policed];
  const base = run.path.base_rtt_ms ? [{value: run.path.base_rtt_ms, label: "propagation"}] : [];
  const span = Math.max(0.1, 2 * (run.path.base_rtt_ms || 0) / 1e3);
  plots.goodput.set(both("goodput_bps", 1e-6).map((c) => smoothed(c, span)), truth, end);
  plots.rtt.set(both("rtt_ms", 1), base, end);
  const queues = (r, ghost) => r.links.filter((l) => l.label.startsWith("forward")).slice(0, 2).map((l) => (
    {times: l.series.t_s || [], values: scaled(column(l.series, "queue_bytes"), 1e-3), label: l.label, ghost, color: css("--accent"), dash: []}));
  plots.queue.set([...(old ? queues(old, true) : []), ...queues(run, false)], run.path.buffer_bytes ? [{value: run.path.buffer_bytes / 1e3, label: "buffer"}] : [], end);
  plots.inflight.set(both("inflight_bytes", 1e-3), limit((run.path.base_rtt_ms || 0) / 8e6, "BDP", (run.path.bdp_bytes || 0) / 1e3), end);
  plots.bandwidth.set(both("bw_bps", 1e-6), truth, end);
  plots.propagation.set(both("min_rtt_ms", 1), base, end);
  plots.gain.set(both("pacing_gain", 1), [{value: 1, label: "1"}], end);
  plots.plane.set(run);
  plots.bandwidth.figure.hidden = plots.bandwidth.curves.length === 0;
  plots.propagation.figure.hidden = plots.propagation.curves.length === 0;
  plots.gain.figure.hidden = plots.gain.curves.length === 0;
  for (const p of Object.values(plots)) if (p.render && !p.figure.hidden) p.render();
  showTable(run, old);
  showReasons(run);
  draw();
}

// The rate of the first link over time, or null where it is constant.
function varyingRate(run) {
  const link = run.links.find((l) => l.label.startsWith("forward")), rates = link && column(link.series, "rate_bps");
  if (!rates || !rates.some((r) => Number.isFinite(r) && r !== rates[0])) return null;
  return {times: link.series.t_s, values: Array.from(rates)};
}

function showTable(run, old) {
  const table = $("table");
  table.replaceChildren();
  const head = table.createTHead().insertRow();
  for (const name of ["flow", "goodput Mbit/s", "share %", "retr %", "RTT p50 ms", "RTT p95 ms"]) {
    const th = document.createElement("th"); th.scope = "col"; th.textContent = name; head.append(th);
  }
  const body = table.createTBody();
  const rows = (r, note) => {
    const total = r.flows.reduce((sum, f) => sum + f.summary.goodput_bps, 0);
    for (const f of r.flows) {
      const s = f.summary, row = body.insertRow();
      const retr = s.packets_sent ? 100 * s.packets_retransmitted / s.packets_sent : 0;
      const cells = [f.label + note, amount(s.goodput_bps / 1e6), amount(total ? 100 * s.goodput_bps / total : 0), amount(retr), amount(s.rtt_ms.p50), amount(s.rtt_ms.p95)];
      cells.forEach((text, i) => { const cell = document.createElement(i ? "td" : "th"); if (!i) cell.scope = "row"; cell.textContent = text; row.append(cell); });
    }
  };
  rows(run, "");
  if (old) rows(old, " (kept)");
}

function showReasons(run) {
  const select = $("reasons-of"), chosen = Math.min(Number(select.value) || 0, run.flows.length - 1);
  select.replaceChildren(...run.flows.map((f, i) => { const o = document.createElement("option"); o.value = i; o.textContent = f.label; return o; }));
  select.value = String(Math.max(0, chosen));
  const list = reasonsOf(run.flows[Math.max(0, chosen)] || {});
  const items = list.slice(0, 400).map(({at, text}) => { const li = document.createElement("li"); li.dataset.at = at; li.textContent = `${at.toFixed(2)} s: ${text}`; return li; });
  $("reasons").replaceChildren(...items);
  if (list.length > 400) { const li = document.createElement("li"); li.textContent = `${list.length - 400} more changes are not listed.`; $("reasons").append(li); }
}

let currentReason = null;
function draw() {
  const run = run0();
  const speed = Number($("speed").value);
  drawPicture($("picture"), run, outcome ? outcome.packets : [], now, speed <= 0.25 || !playing);
  for (const p of Object.values(plots)) if (!p.figure.hidden) p.cursor(now);
  $("clock").textContent = `${now.toFixed(now < 10 ? 3 : 2)} s`;
  $("time").value = now;
  const items = $("reasons").children;
  let lo = 0, hi = items.length;
  while (lo < hi) { const mid = (lo + hi) >> 1; if (Number(items[mid].dataset.at) <= now) lo = mid + 1; else hi = mid; }
  const at = lo - 1;
  if (currentReason !== items[at]) {
    if (currentReason) currentReason.classList.remove("current");
    currentReason = items[at] || null;
    if (currentReason) {
      currentReason.classList.add("current");
      const list = $("reasons");
      list.scrollTop = currentReason.offsetTop - list.offsetTop - 60;
    }
  }
}

function frame(time) {
  if (!playing) return;
  now += Math.min(0.1, (time - lastFrame) / 1000) * Number($("speed").value);
  lastFrame = time;
  if (now >= duration()) { now = duration(); setPlaying(false); }
  draw();
  if (playing) requestAnimationFrame(frame);
}

function setPlaying(on) {
  playing = on;
  $("play").textContent = on ? "Pause" : "Play";
  if (on) {
    if (now >= duration() - 1e-9) now = 0;
    lastFrame = performance.now();
    requestAnimationFrame(frame);
  }
}

// --- controls -----------------------------------------------------------------------------------------------------------

const toPosition = (p, v) => p.log ? Math.log(Math.max(p.min, v) / p.min) / Math.log(p.max / p.min) : (v - p.min) / (p.max - p.min);
const fromPosition = (p, x) => p.log ? p.min * (p.max / p.min) ** x : p.min + (p.max - p.min) * x;
// What can change during a run: the link's schedule has these.
const LIVE = {rate: (v) => ({rate: v}), rtt: (v) => ({delay: Math.max(0, v - setup.rtt / 2)}), loss: (v) => ({loss: v})};

function makeSliders() {
  for (const p of PATH) {
    const row = document.createElement("div"); row.className = "slider";
    const label = document.createElement("label"); label.htmlFor = `range-${p.key}`; label.textContent = p.label;
    const range = document.createElement("input"); range.type = "range"; range.id = `range-${p.key}`; range.min = 0; range.max = 1; range.step = 0.001;
    const field = document.createElement("input"); field.type = "text"; field.id = `field-${p.key}`; field.inputMode = "decimal"; field.setAttribute("aria-label", `${p.label} in ${p.unit}`);
    row.append(label, range, field);
    $("sliders").append(row);
    const show = (v) => { field.value = p.off && v === 0 ? "off" : `${short(v)} ${p.unit}`; range.setAttribute("aria-valuetext", field.value); };
    const sync = () => { range.value = toPosition(p, setup[p.key]); show(setup[p.key]); };
    range.addEventListener("input", () => { const v = Number(short(fromPosition(p, Number(range.value)))); change(p.key, v); show(v); });
    field.addEventListener("change", () => {
      const v = p.off && field.value.trim() === "off" ? 0 : Number.parseFloat(field.value.replace(",", "."));
      if (!(v >= p.min && v <= p.max)) { showProblem({message: `${p.label} must be between ${p.min} and ${p.max} ${p.unit}, got “${field.value}”`, line: null}); sync(); return; }
      change(p.key, v);
      sync();
    });
    p.sync = sync;
    sync();
  }
}

let runTimer = 0;
function change(key, value) {
  const live = document.querySelector("input[name=when]:checked").value === "now" && LIVE[key] && now > 0;
  if (live) {
    const at = Number(now.toFixed(3));
    const before = setup.changes.filter((c) => Math.abs(c.at - at) >= 0.0005), same = setup.changes.filter((c) => Math.abs(c.at - at) < 0.0005);
    setup.changes = [...before, Object.assign({at}, ...same, LIVE[key](value))];
  } else {
    setup[key] = value;
  }
  typed = null;
  $("reset-toml").hidden = true;
  if (document.body.classList.contains("predicting")) { hideResult(false); show(); }
  showChanges();
  clearTimeout(runTimer);
  runTimer = setTimeout(simulate, 60);
}

function showChanges() {
  $("undo-changes").hidden = $("changes").hidden = setup.changes.length === 0;
  $("changes").textContent = setup.changes.map((c) => `at ${c.at.toFixed(2)} s: ` + Object.entries(c).filter(([k]) => k !== "at")
    .map(([k, v]) => `${k} ${short(v)} ${{rate: "Mbit/s", delay: "ms one way", loss: "%"}[k]}`).join(", ")).join("; ");
}

function makeFlows() {
  const box = $("flows");
  box.replaceChildren(...setup.flows.map((flow, i) => {
    const row = document.createElement("div"); row.className = "flow";
    row.style.setProperty("--c", styleOf(setup.flows, i).color);
    const field = (text, element) => { const label = document.createElement("label"); label.append(text + " ", element); return label; };
    const select = (options, value, apply) => {
      const s = document.createElement("select");
      for (const o of options) { const option = document.createElement("option"); option.value = option.textContent = o; s.append(option); }
      s.value = value;
      s.addEventListener("change", () => { apply(s.value); makeFlows(); change("flows", setup.flows); });
      return s;
    };
    const names = mineText === null ? controllers : [...controllers, "mine"];
    const cc = select(names, flow.cc, (v) => { flow.cc = v; flow.settings = ""; });
    const app = select(Object.keys(APPS), flow.app, (v) => { flow.app = v; });
    const start = document.createElement("input"); start.type = "number"; start.min = 0; start.max = 300; start.step = 0.1; start.value = flow.start;
    start.addEventListener("change", () => { flow.start = Math.min(300, Math.max(0, Number(start.value) || 0)); change("flows", setup.flows); });
    const settings = document.createElement("input"); settings.type = "text"; settings.value = flow.settings; settings.placeholder = "key=value";
    settings.addEventListener("change", () => { flow.settings = settings.value.slice(0, 200); change("flows", setup.flows); });
    const remove = document.createElement("button"); remove.type = "button"; remove.textContent = "Remove"; remove.setAttribute("aria-label", `Remove flow ${i + 1}`);
    remove.disabled = setup.flows.length === 1;
    remove.addEventListener("click", () => { setup.flows.splice(i, 1); makeFlows(); change("flows", setup.flows); });
    row.append(field("Controller", cc), field("Start, s", start), field("Sends", app), field("Settings", settings), remove);
    return row;
  }));
  $("add-flow").disabled = setup.flows.length >= MAX_FLOWS;
}

function syncControls() {
  for (const p of PATH) p.sync();
  $("queue").value = setup.queue;
  $("duration").value = setup.duration;
  $("seed").value = setup.seed;
  makeFlows();
  showChanges();
}

function load(next) {
  setup = next;
  typed = null;
  now = 0;
  $("reset-toml").hidden = true;
  syncControls();
  return simulate();
}

function save(name, bytes, type) {
  const a = document.createElement("a");
  a.href = URL.createObjectURL(new Blob([bytes], {type}));
  a.download = name;
  a.click();
  setTimeout(() => URL.revokeObjectURL(a.href), 10000);
}

// Completion of keys and controllers at the cursor of the text.
const WORDS = ["title", "duration", "warmup", "sample", "seed", "repeats", "rate", "rtt", "buffer", "queue", "loss", "delay", "jitter", "reorder", "aggregate", "policer",
  "blackouts", "schedule", "cellular", "cc", "start", "stop", "size", "app", "settings", "count", "stagger", "ecn", "paced", "receive_buffer", "send_buffer", "extra_rtt",
  "[path]", "[[path.forward]]", "[[path.reverse]]", "[[flow]]", "[sweep]", "[[check]]"];
function complete() {
  const area = $("toml"), box = $("completions");
  const before = area.value.slice(0, area.selectionStart).match(/[\w[.]+$/);
  const found = before && before[0].length > 1 ? [...WORDS, ...controllers].filter((w) => w.startsWith(before[0]) && w !== before[0]).slice(0, 6) : [];
  box.hidden = found.length === 0;
  box.replaceChildren(...found.map((w) => {
    const b = document.createElement("button"); b.type = "button"; b.setAttribute("role", "option"); b.textContent = w;
    b.addEventListener("click", () => {
      const at = area.selectionStart;
      area.setRangeText(w.slice(before[0].length), at, at, "end");
      box.hidden = true;
      area.focus();
      area.dispatchEvent(new Event("input"));
    });
    return b;
  }));
}

let checkTimer = 0;
function wire() {
  makeSliders();
  for (const q of QUEUES) { const o = document.createElement("option"); o.value = o.textContent = q; $("queue").append(o); }
  $("queue").addEventListener("change", () => change("queue", $("queue").value));
  $("duration").addEventListener("change", () => { $("duration").value = Math.min(300, Math.max(1, Number($("duration").value) || 20)); change("duration", Number($("duration").value)); });
  $("seed").addEventListener("change", () => { $("seed").value = Math.min(4294967295, Math.max(0, Math.floor(Number($("seed").value) || 0))); change("seed", Number($("seed").value)); });
  $("undo-changes").addEventListener("click", () => change("changes", []));
  $("add-flow").addEventListener("click", () => { setup.flows.push({cc: "bbr3", start: 0, app: "bulk", settings: ""}); makeFlows(); change("flows", setup.flows); });
  $("play").addEventListener("click", () => setPlaying(!playing));
  const step = (by) => { setPlaying(false); now = Math.min(duration(), Math.max(0, now + by * (run0() && run0().path.base_rtt_ms || 40) / 1e3)); draw(); };
  $("back").addEventListener("click", () => step(-1));
  $("forth").addEventListener("click", () => step(1));
  $("time").addEventListener("input", () => { setPlaying(false); now = Number($("time").value); draw(); });
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|TEXTAREA|SELECT|BUTTON)$/.test(e.target.tagName)) return;
    if (e.key === " ") { e.preventDefault(); setPlaying(!playing); }
    if (e.key === "ArrowLeft") step(-1);
    if (e.key === "ArrowRight") step(1);
  });
  $("pin").addEventListener("click", () => { pinned = outcome; $("unpin").hidden = false; show(); });
  $("unpin").addEventListener("click", () => { pinned = null; $("unpin").hidden = true; show(); });
  $("reasons-of").addEventListener("change", () => { showReasons(run0()); draw(); });
  $("toml").addEventListener("input", () => {
    complete();
    clearTimeout(checkTimer);
    checkTimer = setTimeout(async () => {
      const {checked} = await ask({check: $("toml").value}).catch(() => ({checked: null}));
      const problem = checked ? JSON.parse(checked) : null;
      $("toml-problem").hidden = !problem;
      if (problem) $("toml-problem").textContent = (problem.line ? `line ${problem.line}, column ${problem.column}: ` : "") + problem.message + (problem.help ? `\n${problem.help}` : "");
    }, 250);
  });
  $("run-toml").addEventListener("click", () => { typed = $("toml").value; hideResult(false); $("reset-toml").hidden = false; simulate(); });
  $("reset-toml").addEventListener("click", () => { typed = null; $("reset-toml").hidden = true; simulate(); });
  $("save-toml").addEventListener("click", () => save("scenario.toml", $("toml").value, "text/plain"));
  const exported = (form, type) => async () => {
    try { save(`recording.${form}`, (await ask({save: form})).bytes, type); } catch (problem) { showProblem(problem); }
  };
  $("save-csv").addEventListener("click", exported("csv", "text/csv"));
  $("save-json").addEventListener("click", exported("json", "application/json"));
  $("save-svg").addEventListener("click", exported("svg", "image/svg+xml"));
  $("copy-link").addEventListener("click", async () => {
    const link = location.href.split("#")[0] + await toLink(state());
    try { await navigator.clipboard.writeText(link); $("status").textContent = "Link copied."; } catch { location.hash = link.split("#")[1]; $("status").textContent = "The address bar has the link."; }
  });
  $("mine").value = parts.mine;
  $("use-mine").addEventListener("click", async () => {
    mineText = $("mine").value;
    try {
      await startWorker();
    } catch (error) {
      mineText = null;
      await startWorker().catch(() => {});
      showProblem({message: `your controller: ${error.message}`, line: null, help: "correct the script and try again"});
      return;
    }
    setup.flows = [{cc: "mine", start: 0, app: "bulk", settings: ""}, {cc: "bbr", start: 0, app: "bulk", settings: ""}];
    await load(setup);
    // After a controller that was stopped, its flow would be unknown.
    if (mineText === null) { setup.flows[0].cc = "reno"; makeFlows(); }
  });
  window.addEventListener("resize", show);
  darkQuery.addEventListener("change", () => { makeFlows(); show(); });
  window.addEventListener("hashchange", (e) => {
    // A link that was remembered for an earlier run may be in the address by now.
    clearTimeout(saveTimer);
    openLink(new URL(e.newURL).hash);
  });
  for (const p of Object.values(plots)) { $("plots").append(p.figure); p.onSeek = (t) => { setPlaying(false); now = t; draw(); }; }
  wireCourse();
}

async function openLink(hash) {
  if (!hash.startsWith("#s=")) return false;
  try {
    const linked = await fromLink(hash);
    hideResult(false);
    $("lesson").hidden = true;
    openChapter = null;
    if (linked.setup) setup = linked.setup;
    typed = linked.toml;
    $("reset-toml").hidden = typed === null;
    syncControls();
    if (linked.chapter !== null && !linked.setup && typed === null) await showChapter(linked.chapter);
    else await simulate();
    return true;
  } catch (error) {
    hideResult(false);
    $("lesson").hidden = true;
    openChapter = null;
    await load(initialSetup());
    showProblem({message: `this link cannot be opened: ${error.message}`, line: null, help: "the standard path is shown instead"});
    return true;
  }
}

async function decode(base64) {
  const bytes = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

async function main() {
  wire();
  syncControls();
  try {
    wasmModule = await WebAssembly.compile(await decode(parts.wasm));
    const known = await startWorker();
    controllers = known.map((c) => c.name).filter((n) => n !== "fixed");
    makeFlows();
  } catch (error) {
    $("status").textContent = "This browser cannot run the simulator (it needs WebAssembly and DecompressionStream, as of 2023): " + error.message;
    return;
  }
  if (!await openLink(location.hash)) await simulate();
  document.body.dataset.ready = "true";
  performance.mark("ready");
}
main();
