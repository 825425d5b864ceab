// Why a controller changed its state, in the words of its specification.
const REASONS = {
  Startup: "Startup: the sending rate doubles every round trip until the delivery rate stops growing.",
  Drain: "Drain: the delivery rate grew less than 25 % in each of three rounds, so the pipe is full. Sending slower than the bottleneck empties the queue that Startup built.",
  ProbeBW: "ProbeBW: inflight is down to one BDP. Cycle the pacing gain: 1.25 to probe for more bandwidth, 0.75 to drain what that queued, then 1 for six round trips.",
  ProbeBW_DOWN: "ProbeBW_DOWN: send at 90 % of the estimated bandwidth, to drain the queue and leave room for others.",
  ProbeBW_CRUISE: "ProbeBW_CRUISE: inflight is below its target. Send at the estimated bandwidth, with headroom for others.",
  ProbeBW_REFILL: "ProbeBW_REFILL: it is time to probe. Refill the pipe for one round trip, so that the probe meets a full pipe and not spare room.",
  ProbeBW_UP: "ProbeBW_UP: send at 125 % of the estimated bandwidth, until the queue or losses show that there is no more.",
  ProbeRTT: "ProbeRTT: the minimum RTT has not been seen for a while. Cut inflight for at least 200 ms, to measure the propagation delay without the own queue.",
  SlowStart: "Slow start: one segment more per acknowledged segment, until a loss or a rising delay.",
  ConservativeSlowStart: "Conservative slow start: the RTT rises, so the window grows at a quarter of the speed (HyStart++).",
  CongestionAvoidance: "Congestion avoidance: the window grows slowly until a packet is lost.",
  Recovery: "Fast recovery: a packet was lost. A loss-based controller takes that for congestion and cuts its window.",
  Loss: "Timeout: no acknowledgement arrived in time. Start again from a small window.",
  Scripted: "Your controller sets the window.",
};
const EVENTS = {
  retransmission_timeout: "The retransmission timer fired.",
  spurious_loss: "The losses turned out to be none: the reaction is undone.",
};

function reasonsOf(flow) {
  const all = (flow.states || []).map((s) => ({at: s.at_s, text: REASONS[s.state] || s.state}));
  for (const e of flow.events || []) if (EVENTS[e.kind]) all.push({at: e.at_s, text: EVENTS[e.kind]});
  return all.sort((a, b) => a.at - b.at);
}
