// A delay-based toy: one packet more per RTT while the queue adds less than 10 ms, a quarter less above that or at a loss.
function start({smss, cwnd}) {
  return {smss, cwnd, minRtt: Infinity, holdUntil: 0};
}
function onAck(s, {now, rtt, acked}) {
  if (rtt > 0) s.minRtt = Math.min(s.minRtt, rtt);
  if (rtt > s.minRtt + 10 && now > s.holdUntil) {
    s.cwnd *= 0.75;
    s.holdUntil = now + rtt;
  } else {
    s.cwnd += s.smss * acked / s.cwnd;
  }
}
function onLoss(s) {
  s.cwnd *= 0.75;
}
function onTimeout(s) {
  s.cwnd = 2 * s.smss;
}
function pacingRate(s) { // bit/s; 0 for none
  return 0;
}
