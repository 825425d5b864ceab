// The course. LESSONS has the texts of docs/course; the simulations that answer them are here.

const mbit = (bps) => (bps / 1e6).toFixed(bps < 1e7 ? 2 : 1) + " Mbit/s";
const shareOf = (run, i) => 100 * run.flows[i].summary.goodput_bps / run.flows.reduce((sum, f) => sum + f.summary.goodput_bps, 0);
const flowsOf = (...names) => names.map((cc) => ({cc, start: 0, app: "bulk", settings: ""}));

// What each chapter of docs/course simulates, and the answer that the recording gives.
const SIMULATIONS = [
  {setup: {rate: 20, rtt: 40, buffer: 4, flows: flowsOf("bbr"), duration: 12},
    answer: (run) => { const p50 = run.flows[0].summary.rtt_ms.p50; return p50 < 55 ? 0 : p50 < 120 ? 1 : 2; },
    explain: (run) => `The median RTT is ${run.flows[0].summary.rtt_ms.p50.toFixed(1)} ms at ${mbit(run.flows[0].summary.goodput_bps)}; packet headers, the first half second and ProbeRTT take the rest of the ${mbit(run.path.rate_bps)}. In the plot “Operating point” the flow stays at the bend: a full pipe, an empty queue. Now choose cubic for the flow. Its point moves right, to more data in flight, at the same rate and with a longer RTT.`},
  {setup: {rate: 100, rtt: 100, loss: 1, flows: flowsOf("cubic"), duration: 20},
    answer: (run) => { const g = run.flows[0].summary.goodput_bps; return g > 8e7 ? 0 : g > 2e7 ? 1 : 2; },
    explain: (run) => `CUBIC carries ${mbit(run.flows[0].summary.goodput_bps)}. Each loss reduces its window by 30 %, and at 100 ms it needs seconds to grow back. Now choose bbr for the flow: it follows the delivery rate, which random losses hardly reduce.`},
  {setup: {rate: 50, rtt: 60, buffer: 8, flows: flowsOf("bbr"), duration: 3},
    answer: (run) => { const drain = stateOf(run.flows[0], "Drain"); const rounds = drain ? drain.at_s * 1e3 / 60 : 100; return rounds < 4 ? 0 : rounds < 25 ? 1 : 2; },
    explain: (run) => { const drain = stateOf(run.flows[0], "Drain"); return drain ? `Startup ends after ${drain.at_s.toFixed(2)} s, which is ${(drain.at_s * 1e3 / 60).toFixed(0)} RTTs of 60 ms. Five doublings lead from ten packets to the BDP. Then come three round trips without growth, and these are longer than 60 ms because the queue fills. “Bandwidth estimate” shows both: the doublings, then the plateau. To see single packets, play at a speed of 1/20.` : "Startup did not end: the run is too short."; }},
  {setup: {rate: 50, rtt: 60, buffer: 8, flows: flowsOf("bbr"), duration: 3},
    answer: (run) => { const f = run.flows[0], gains = column(f.series, "pacing_gain") || [], drain = stateOf(f, "Drain"); const k = drain ? indexAt(f.series.t_s, drain.at_s + 0.02) : -1; const g = k >= 0 ? gains[k] : 1; return g > 0.7 ? 0 : g > 0.1 ? 1 : 2; },
    explain: (run) => { const f = run.flows[0], d = stateOf(f, "Drain"), p = stateOf(f, "ProbeBW"); return d && p ? `Drain starts at ${d.at_s.toFixed(2)} s and lasts ${((p.at_s - d.at_s) * 1e3).toFixed(0)} ms: 1/2.89 empties the queue about as fast as 2.89 filled it. It ends when one BDP is in flight. In the plots, compare “Queue” with “Pacing gain”: the queue grows, stays at the window's limit until Startup ends, and empties in Drain.` : "Lengthen the run to see Drain end."; }},
  {setup: {rate: 10, rtt: 40, buffer: 4, flows: flowsOf("bbr"), duration: 10, changes: [{at: 4, rate: 20}]},
    answer: (run) => { const at = usedAfter(run); return at === null || at >= 4 ? 2 : at < 0.06 ? 0 : 1; },
    explain: (run) => { const at = usedAfter(run); return at === null ? "The estimate did not follow within the run." : `The bandwidth estimate passes 17.5 Mbit/s ${at.toFixed(2)} s after the change, ${(at * 1e3 / 40).toFixed(0)} RTTs later. The probe begins a few RTTs after the change and lasts longer than usual: it ends only when 1.25 BDP is in flight, and the estimate, and with it the BDP, grows each RTT. To try the opposite, move the time to 6 s, choose “from this moment”, and set the rate to 10. BBR then needs ten round trips to forget the old maximum, and the queue makes each of them longer.`; }},
  {setup: {rate: 50, rtt: 30, buffer: 2, flows: [{cc: "bbr", start: 0, app: "bulk", settings: ""}, {cc: "bbr", start: 3, app: "bulk", settings: ""}], duration: 40},
    answer: (run) => { const g = run.flows.map((f) => lastTen(f)); const s = g[0] / (g[0] + g[1]); return s > 0.65 ? 0 : s >= 0.35 ? 1 : 2; },
    explain: (run) => { const g = run.flows.map((f) => lastTen(f)); return `In the last ten seconds the first flow has ${(100 * g[0] / (g[0] + g[1])).toFixed(0)} %. When a flow with a small share probes, its share grows relatively more than a large one does. ProbeRTT helps: the flows enter it together, the queue empties, and both measure the true RTT. The price: each flow's maximum includes its probes, so together they have more than one BDP in flight, and the median RTT is ${run.flows[0].summary.rtt_ms.p50.toFixed(0)} ms instead of 30.`; }},
  {setup: {rate: 50, rtt: 40, policer: 10, flows: flowsOf("bbr"), duration: 15},
    answer: (run) => { const s = run.flows[0].summary, r = s.packets_retransmitted / s.packets_sent; return r < 0.005 ? 0 : r < 0.4 ? 1 : 2; },
    explain: (run) => { const s = run.flows[0].summary; return `BBR carries ${mbit(s.goodput_bps)} and retransmits ${(100 * s.packets_retransmitted / s.packets_sent).toFixed(1)} % of its packets. It loses hundreds in the first second, while the full bucket makes the path look like 50 Mbit/s. Two intervals with many losses and the same delivery rate then reveal the policer, and BBR v1 paces at that rate for 48 round trips; the probes after that lose packets again. Compare cubic and bbr3.`; }},
  {setup: {rate: 50, rtt: 30, hold: 30, buffer: 4, flows: flowsOf("bbr"), duration: 12},
    answer: (run) => { const u = run.flows[0].summary.goodput_bps / run.path.goodput_limit_bps; return u > 0.85 ? 0 : u > 0.35 ? 1 : 2; },
    explain: (run) => `BBR carries ${mbit(run.flows[0].summary.goodput_bps)} of the possible ${mbit(run.path.goodput_limit_bps)}. Its window is two BDP, and it adds what the bunches acknowledge in excess of the estimated bandwidth. “Inflight” is therefore well above one BDP. The price is a queue: the median RTT is ${run.flows[0].summary.rtt_ms.p50.toFixed(0)} ms.`},
  {setup: {rate: 50, rtt: 40, buffer: 0.2, flows: flowsOf("bbr", "cubic"), duration: 40},
    answer: (run) => { const s = shareOf(run, 0); return s < 58 ? 0 : s <= 80 ? 1 : 2; },
    explain: (run) => `v1 takes ${shareOf(run, 0).toFixed(0)} %. Its probes overflow the small queue, CUBIC reduces its window for each loss, and v1 fills the free bandwidth. Now choose bbr3 for the first flow: it takes about 60 %. With a buffer of 4 BDP or more, it is CUBIC that takes more.`},
  {setup: {rate: 20, rtt: 40, buffer: 8, flows: flowsOf("cubic"), duration: 30},
    answer: (run) => { const p = run.flows[0].summary.rtt_ms.p95; return p < 80 ? 0 : p <= 200 ? 1 : 2; },
    explain: (run) => `The 95th percentile is ${run.flows[0].summary.rtt_ms.p95.toFixed(0)} ms. Choose fq-codel as the queue, or bbr for the flow: either removes most of the delay. On your own host, measure three values: the RTT without load, the RTT under load, and the share of retransmissions. “fullpipe advise HOST” measures them for BBR and for the host's present controller, in turns.`},
];

const COURSE = LESSONS.map((lesson, i) => ({...lesson, ...SIMULATIONS[i]}));

const stateOf = (flow, name) => flow.states.find((s) => s.state === name);

// Seconds from the change of the rate until the estimate has followed it.
function usedAfter(run) {
  const {series} = run.flows[0], estimate = column(series, "bw_bps") || [];
  const at = series.t_s.findIndex((t, i) => t > 4 && estimate[i] > 17.5e6);
  return at < 0 ? null : series.t_s[at] - 4;
}

function lastTen(flow) {
  const g = column(flow.series, "goodput_bps") || [], t = flow.series.t_s, from = t[t.length - 1] - 10;
  let sum = 0, n = 0;
  for (let i = 0; i < t.length; i++) if (t[i] >= from && Number.isFinite(g[i])) { sum += g[i]; n++; }
  return n ? sum / n : 0;
}

let openChapter = null;

// Until the reader has predicted, the result is not shown.
const hideResult = (on) => document.body.classList.toggle("predicting", on);

function wireCourse() {
  COURSE.forEach((c, i) => { const o = document.createElement("option"); o.value = i; o.textContent = `${i + 1}. ${c.title}`; $("chapter").append(o); });
  $("chapter-open").addEventListener("click", () => showChapter(Number($("chapter").value)));
}

const chapterSetup = (n) => checkedSetup({...initialSetup(), ...COURSE[n].setup});

// The run of chapter n: the one on the page if it is this chapter's, otherwise a new one. Null if it was stopped or another chapter was opened.
async function chapterRun(n) {
  const text = toToml(chapterSetup(n));
  if (state().chapter === n) await (queued ?? busy);
  if (state().chapter !== n || !outcome || outcome.text !== text) await load(chapterSetup(n));
  return openChapter === n && outcome && outcome.text === text ? run0() : null;
}

async function showChapter(n) {
  setPlaying(false);
  openChapter = n;
  $("chapter").value = n;
  const chapter = COURSE[n], box = $("lesson");
  const element = (name, text) => { const e = document.createElement(name); e.textContent = text; return e; };
  const button = (text, pressed) => { const b = element("button", text); b.type = "button"; b.addEventListener("click", pressed); return b; };
  const answer = element("p", "");
  answer.setAttribute("role", "status");
  const plots = button("Show the plots", () => $("result").scrollIntoView());
  plots.hidden = true;
  const choices = chapter.choices.map((text, i) => {
    const b = button(text, async () => {
      const run = await chapterRun(n);
      if (!run) return;
      now = 0;
      hideResult(false);
      show();
      const right = chapter.answer(run);
      choices.forEach((c, k) => { c.classList.toggle("right", k === right); c.classList.toggle("wrong", k === i && k !== right); c.setAttribute("aria-pressed", String(k === i)); });
      answer.textContent = (right === i ? "Correct. " : `The simulation gives another answer: “${chapter.choices[right]}”. `) + chapter.explain(run);
      plots.hidden = false;
      setPlaying(!matchMedia("(prefers-reduced-motion: reduce)").matches);
    });
    b.className = "choice";
    return b;
  });
  const next = button(n + 1 < COURSE.length ? `Next: ${COURSE[n + 1].title}` : "Close the course", () => {
    if (n + 1 < COURSE.length) { showChapter(n + 1); $("course").scrollIntoView(); return; }
    box.hidden = true; openChapter = null; hideResult(false); show(); remember();
  });
  const row = element("div", "");
  row.className = "row";
  row.append(plots, next);
  const question = element("p", "");
  question.append(element("strong", "Your prediction: "), chapter.question);
  box.replaceChildren(element("h3", `${n + 1}. ${chapter.title}`), ...chapter.text.map((t) => element("p", t)), question, ...choices, answer, row);
  box.hidden = false;
  hideResult(true);
  await load(chapterSetup(n));
}
