// The course: ten chapters. Each sets a path, asks for a prediction, and lets the simulation answer.

const mbit = (bps) => (bps / 1e6).toFixed(bps < 1e7 ? 2 : 1) + " Mbit/s";
const shareOf = (run, i) => 100 * run.flows[i].summary.goodput_bps / run.flows.reduce((sum, f) => sum + f.summary.goodput_bps, 0);
const flowsOf = (...names) => names.map((cc) => ({cc, start: 0, app: "bulk", settings: ""}));
const ratio = (a, b) => (a / b).toFixed(a / b < 10 ? 1 : 0);

const COURSE = [
  {title: "What is a BDP?",
    text: ["A path carries a limited number of bits per second (its bottleneck rate) and takes a limited time to carry them there and an answer back (its RTT). Rate × RTT is the bandwidth-delay product, BDP: the data that is on its way when the pipe is exactly full.",
      "Here a flow keeps its window at what BBR estimates: about one BDP. 20 Mbit/s × 40 ms is 100 kB, or 67 packets of 1500 bytes."],
    setup: {rate: 20, rtt: 40, buffer: 4, flows: flowsOf("bbr"), duration: 12},
    question: "BBR keeps about one BDP in flight. How long is the median RTT?",
    choices: ["Close to 40 ms: one BDP fills the pipe and no queue", "About 80 ms: the queue holds another BDP", "About 200 ms: the buffer of four BDP fills"],
    answer: (run) => { const p50 = run.flows[0].summary.rtt_ms.p50; return p50 < 55 ? 0 : p50 < 120 ? 1 : 2; },
    explain: (run) => `The median RTT is ${run.flows[0].summary.rtt_ms.p50.toFixed(1)} ms at ${mbit(run.flows[0].summary.goodput_bps)}. In the operating-point plot the flow stays at the knee, where the pipe is full and the queue is empty. Now choose cubic for the flow and see it move right: more in flight, the same rate, a longer RTT.`},
  {title: "Why does loss lie?",
    text: ["Reno and CUBIC read a lost packet as “the queue overflowed”. On a path that loses packets for other reasons, such as radio or a dirty fibre, that reading is wrong.",
      "This path loses one packet in a hundred at random, and its queue never overflows."],
    setup: {rate: 100, rtt: 100, loss: 1, flows: flowsOf("cubic"), duration: 20},
    question: "What does CUBIC get of 100 Mbit/s with 1 % random loss and 100 ms?",
    choices: ["About 99 Mbit/s: it loses one percent", "About 50 Mbit/s: it halves now and then", "A few Mbit/s: each loss cuts the window, and it never recovers"],
    answer: (run) => { const g = run.flows[0].summary.goodput_bps; return g > 8e7 ? 0 : g > 2e7 ? 1 : 2; },
    explain: (run) => `CUBIC carries ${mbit(run.flows[0].summary.goodput_bps)}. It cuts its window by 30 % for each loss and needs seconds to grow back at 100 ms. Now choose bbr: it measures the delivery rate, which random loss hardly lowers.`},
  {title: "Startup",
    text: ["A new flow knows nothing of the path. BBR's Startup doubles its rate every round trip and watches the delivery rate. When that stops growing, the pipe is full.",
      "Play the first second at a speed of 1/20."],
    setup: {rate: 50, rtt: 60, buffer: 8, flows: flowsOf("bbr"), duration: 3},
    question: "How long does Startup take on 50 Mbit/s and 60 ms?",
    choices: ["About two round trips", "Some eight to twelve round trips", "A hundred round trips"],
    answer: (run) => { const drain = run.flows[0].states.find((s) => s.state === "Drain"); const rounds = drain ? drain.at_s * 1e3 / 60 : 100; return rounds < 4 ? 0 : rounds < 25 ? 1 : 2; },
    explain: (run) => { const drain = run.flows[0].states.find((s) => s.state === "Drain"); return drain ? `Startup ends after ${drain.at_s.toFixed(2)} s, ${(drain.at_s * 1e3 / 60).toFixed(0)} times the propagation RTT: doublings from ten packets to a BDP of 250, and three rounds to be sure that the rate no longer grows. See the plateau in “Bandwidth estimate”.` : "Startup did not end: the run is too short."; }},
  {title: "Drain",
    text: ["To be sure that the pipe is full, Startup overshoots: up to two BDP more are in flight than the path holds, and they stand in the queue. Drain sends slower than the bottleneck until they are gone.",
      "Look at the queue and at the pacing gain between 0.4 and 1 s."],
    setup: {rate: 50, rtt: 60, buffer: 8, flows: flowsOf("bbr"), duration: 3},
    question: "How far does the pacing gain fall in Drain?",
    choices: ["To 0.9", "To about 0.35, the inverse of Startup's 2.89", "To 0: BBR stops sending"],
    answer: (run) => { const f = run.flows[0], gains = column(f.series, "pacing_gain") || []; const drain = f.states.find((s) => s.state === "Drain"); const k = drain ? indexAt(f.series.t_s, drain.at_s + 0.02) : -1; const g = k >= 0 ? gains[k] : 1; return g > 0.7 ? 0 : g > 0.1 ? 1 : 2; },
    explain: (run) => { const f = run.flows[0], d = f.states.find((s) => s.state === "Drain"), p = f.states.find((s) => s.state === "ProbeBW"); return d && p ? `Drain lasts ${((p.at_s - d.at_s) * 1e3).toFixed(0)} ms: it removes the queue about as fast as Startup built it, and ends when inflight is down to one BDP.` : "Lengthen the run to see Drain end."; }},
  {title: "Probing",
    text: ["Bandwidth changes. BBR v1 therefore sends 25 % faster for one round trip in eight, then 25 % slower for one, to remove what the probe queued.",
      "The rate of this path doubles at 4 s. Nothing informs the sender."],
    setup: {rate: 10, rtt: 40, buffer: 4, flows: flowsOf("bbr"), duration: 10, changes: [{at: 4, rate: 20}]},
    question: "How soon does BBR use the doubled rate?",
    choices: ["Within a round trip", "Within a second or two: three or four probes of 25 % each", "Not before 10 s pass"],
    answer: (run) => { const f = run.flows[0], g = column(f.series, "bw_bps") || []; let at = 99; for (let i = 0; i < g.length; i++) if (f.series.t_s[i] > 4 && g[i] > 17.5e6) { at = f.series.t_s[i] - 4; break; } return at < 0.1 ? 0 : at < 4 ? 1 : 2; },
    explain: (run) => { const f = run.flows[0], g = column(f.series, "bw_bps") || []; for (let i = 0; i < g.length; i++) if (f.series.t_s[i] > 4 && g[i] > 17.5e6) return `The estimate passes 17.5 Mbit/s ${(f.series.t_s[i] - 4).toFixed(2)} s after the change. 1.25³ is 1.95, so three probes double it, one every eight round trips. Choose “from this moment” and halve the rate yourself: that takes longer, because a maximum must first be forgotten.`; return "The estimate did not follow within the run."; }},
  {title: "Fairness",
    text: ["Several BBR flows share a bottleneck. Each takes the largest delivery rate that it has seen for the bottleneck's; so why do they not keep what they got first?",
      "The second flow starts three seconds after the first."],
    setup: {rate: 50, rtt: 30, buffer: 2, flows: [{cc: "bbr", start: 0, app: "bulk", settings: ""}, {cc: "bbr", start: 3, app: "bulk", settings: ""}], duration: 40},
    question: "How do the two flows share the last ten seconds?",
    choices: ["The first keeps nearly everything", "About equally, between 35 and 65 % each", "The second takes nearly everything"],
    answer: (run) => { const g = run.flows.map((f) => lastTen(f)); const s = g[0] / (g[0] + g[1]); return s > 0.65 ? 0 : s >= 0.35 ? 1 : 2; },
    explain: (run) => { const g = run.flows.map((f) => lastTen(f)); return `In the last ten seconds the first flow has ${(100 * g[0] / (g[0] + g[1])).toFixed(0)} %. The smaller flow's probe gains relatively more than the larger one's, and every ProbeRTT empties the queue for all at the same time, so both see the true RTprop.`; }},
  {title: "Policers",
    text: ["A policer drops what exceeds a rate, without a queue. At first its bucket of tokens is full: for a moment the path looks faster than it is.",
      "Here the link carries 50 Mbit/s, and a policer allows 10."],
    setup: {rate: 50, rtt: 40, policer: 10, flows: flowsOf("bbr"), duration: 15},
    question: "What share of BBR's packets is retransmitted?",
    choices: ["Next to none: it sees the losses and slows down", "Some percent: it measures the policed rate, and pays for each probe", "Most of them"],
    answer: (run) => { const s = run.flows[0].summary, r = s.packets_retransmitted / s.packets_sent; return r < 0.005 ? 0 : r < 0.4 ? 1 : 2; },
    explain: (run) => { const s = run.flows[0].summary; return `${mbit(s.goodput_bps)} at ${(100 * s.packets_retransmitted / s.packets_sent).toFixed(1)} % retransmitted. BBR v1 detects a policer by two intervals of high loss and equal rate, then paces at that rate for 48 rounds. Compare with cubic and bbr3.`; }},
  {title: "ACK aggregation",
    text: ["Wi-Fi, cable and cellular links deliver ACKs in bunches. A sender that waits for ACKs to send has nothing to do in between.",
      "ACKs are held here for 30 ms at a time, on a path of 30 ms."],
    setup: {rate: 50, rtt: 30, hold: 30, buffer: 4, flows: flowsOf("bbr"), duration: 12},
    question: "Does BBR still fill the link?",
    choices: ["Yes, above 85 %: its window of two BDP, and more for aggregation, covers the gaps", "About half of it", "Below a quarter"],
    answer: (run) => { const u = run.flows[0].summary.goodput_bps / run.path.goodput_limit_bps; return u > 0.85 ? 0 : u > 0.35 ? 1 : 2; },
    explain: (run) => `${mbit(run.flows[0].summary.goodput_bps)} of ${mbit(run.path.goodput_limit_bps)}. Inflight is well above one BDP: BBR measures how much more than expected each bunch acknowledges and adds that to its window. The price is a standing queue.`},
  {title: "v1 against v3",
    text: ["BBR v1 ignores loss unless it must not; BBR v3 bounds its window where loss exceeds 2 %. In a shallow buffer that makes the difference between a good and a bad neighbour.",
      "The buffer holds a fifth of a BDP. The flow shares the link with CUBIC."],
    setup: {rate: 50, rtt: 40, buffer: 0.2, flows: flowsOf("bbr", "cubic"), duration: 40},
    question: "What share does BBR v1 take from CUBIC?",
    choices: ["About half", "About two thirds", "More than 80 %"],
    answer: (run) => { const s = shareOf(run, 0); return s < 58 ? 0 : s <= 80 ? 1 : 2; },
    explain: (run) => `v1 takes ${shareOf(run, 0).toFixed(0)} %: its probes overflow the small queue, CUBIC backs off for the losses, and v1 fills what is left. Choose bbr3 instead, and the shares come much closer.`},
  {title: "CUBIC and buffers",
    text: ["CUBIC fills whatever buffer it finds: it grows until a packet is lost. With a deep buffer nothing is lost for long, and every packet waits in a full queue. This is bufferbloat.",
      "The buffer here is eight BDP."],
    setup: {rate: 20, rtt: 40, buffer: 8, flows: flowsOf("cubic"), duration: 30},
    question: "What is CUBIC's RTT, at the 95th percentile?",
    choices: ["Under 60 ms", "100 to 200 ms", "Above 200 ms"],
    answer: (run) => { const p = run.flows[0].summary.rtt_ms.p95; return p < 80 ? 0 : p <= 200 ? 1 : 2; },
    explain: (run) => `${run.flows[0].summary.rtt_ms.p95.toFixed(0)} ms, against 40 ms of propagation. Choose fq-codel as the queue, or bbr as the controller: either removes the delay. On your own host, measure three things: the RTT without load, the RTT under load, and the share of retransmissions. “fullpipe advise HOST” measures them, for both controllers, in turns.`},
];

function lastTen(flow) {
  const g = column(flow.series, "goodput_bps") || [], t = flow.series.t_s, from = t[t.length - 1] - 10;
  let sum = 0, n = 0;
  for (let i = 0; i < t.length; i++) if (t[i] >= from && Number.isFinite(g[i])) { sum += g[i]; n++; }
  return n ? sum / n : 0;
}

let openChapter = null;

function wireCourse() {
  COURSE.forEach((c, i) => { const o = document.createElement("option"); o.value = i; o.textContent = `${i + 1}. ${c.title}`; $("chapter").append(o); });
  $("chapter-open").addEventListener("click", () => showChapter(Number($("chapter").value), true));
}

function showChapter(n, loads) {
  openChapter = n;
  $("chapter").value = n;
  const chapter = COURSE[n], box = $("lesson");
  const element = (name, text) => { const e = document.createElement(name); e.textContent = text; return e; };
  const answer = element("p", "");
  answer.setAttribute("role", "status");
  const choices = chapter.choices.map((text, i) => {
    const b = element("button", text);
    b.type = "button"; b.className = "choice";
    b.addEventListener("click", async () => {
      await load(checkedSetup({...initialSetup(), ...chapter.setup}));
      const run = run0();
      if (!run) return;
      const right = chapter.answer(run);
      choices.forEach((c, k) => { c.classList.toggle("right", k === right); c.classList.toggle("wrong", k === i && k !== right); c.setAttribute("aria-pressed", String(k === i)); });
      answer.textContent = (right === i ? "Right. " : `The simulation says: “${chapter.choices[right]}”. `) + chapter.explain(run);
      setPlaying(!matchMedia("(prefers-reduced-motion: reduce)").matches);
    });
    return b;
  });
  const next = element("button", n + 1 < COURSE.length ? `Next: ${COURSE[n + 1].title}` : "Close the course");
  next.type = "button";
  next.addEventListener("click", () => { if (n + 1 < COURSE.length) showChapter(n + 1, true); else { box.hidden = true; openChapter = null; remember(); } });
  box.replaceChildren(element("h3", `${n + 1}. ${chapter.title}`), ...chapter.text.map((t) => element("p", t)), element("p", "Your prediction: " + chapter.question), ...choices, answer, next);
  box.hidden = false;
  if (loads) load(checkedSetup({...initialSetup(), ...chapter.setup}));
}
