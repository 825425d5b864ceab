// Between the simulator and the controller in the page: numbers in, a window out.
const mine = (() => {
  "use strict";
  /*MINE*/
  const states = new Map();
  return (kind, id, a, b, c, d, e, f) => {
    if (kind === 0) { states.set(id, start({smss: a, cwnd: b})); return states.get(id).cwnd; }
    const s = states.get(id);
    if (!s) return NaN;
    if (kind === 1) onAck(s, {now: a, rtt: b, acked: c, lost: d, inflight: e, deliveryRate: f});
    else if (kind === 2) { if (typeof onLoss === "function") onLoss(s, {now: a, inflight: b}); }
    else if (kind === 3) { if (typeof onTimeout === "function") onTimeout(s, {now: a, inflight: b}); }
    else return typeof pacingRate === "function" ? pacingRate(s) : 0;
    return s.cwnd;
  };
})();
