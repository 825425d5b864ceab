//! What limits a transfer: the application, the receiver's window, the sender's buffer, the congestion
//! controller, or the path. Pure functions of a sender's counters.
//!
//! The kernel keeps the account (`tcp_chrono_start`): of the time a sender had data, how much it waited for
//! the peer's window and for room in its own buffer. What is left over is the congestion window's, and
//! whether the controller or the path is to blame for it shows in the queue: a path that is full has one.

mod observe;

pub(crate) use observe::setting;
pub use observe::{Observed, evidence, process, server};

use crate::client::table::{bytes, millis, rate};
use crate::sample::SocketSample;

/// What limits a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The sender had nothing to send.
    Application,
    /// The receiver's window was full.
    ReceiveWindow,
    /// The sender's buffer was too small.
    SendBuffer,
    /// The controller held back although the path had room.
    CongestionControl,
    /// The path was full.
    Path,
}

/// A sender over some time.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// How long it was observed.
    pub seconds: f64,
    /// The socket at the end, its counters since the beginning of the observation.
    pub socket: SocketSample,
    /// The largest window the receiver announced, bytes.
    pub largest_window: u64,
    /// The least RTT known, seconds; 0 when unknown.
    pub min_rtt: f64,
    /// The usual RTT under this load, seconds.
    pub rtt: f64,
    /// What several streams together carried over the same path, bit/s.
    pub capacity: Option<f64>,
    /// The receiver's `net.ipv4.tcp_rmem`, if it is known.
    pub receiver_rmem: Option<String>,
    /// The sender's `net.ipv4.tcp_wmem`, if it is known.
    pub sender_wmem: Option<String>,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Diagnosis {
    /// The main limit.
    pub limit: Limit,
    /// Shares of the time: application, receive window, send buffer, congestion window.
    pub shares: [f64; 4],
    /// Bits per second.
    pub goodput: f64,
    /// The receive or send buffer that would be enough, bytes.
    pub needed: Option<u64>,
    /// In words, the finding first, then what to do.
    pub words: Vec<String>,
}

/// A share of the time from which a limit is the limit.
const MAIN: f64 = 0.3;
/// Losses below this share do not hold a controller back on ordinary paths (Mathis et al. 1997: at 100 ms
/// and 1460 bytes it still allows 10 Mbit/s for Reno).
const FEW_LOSSES: f64 = 0.0002;

/// Judges.
pub fn diagnose(evidence: &Evidence) -> Diagnosis {
    let e = evidence;
    let seconds = e.seconds.max(1e-6);
    let share = |us: Option<u64>| (us.unwrap_or(0) as f64 / 1e6 / seconds).min(1.0);
    let (busy, window, buffer) =
        (share(e.socket.busy_us), share(e.socket.rwnd_limited_us), share(e.socket.sndbuf_limited_us));
    let idle = (1.0 - busy).max(0.0);
    let cwnd = (busy - window - buffer).max(0.0);
    let sent = e.socket.bytes_acked.unwrap_or(0);
    let goodput = sent as f64 * 8.0 / seconds;
    let queue = e.rtt - e.min_rtt;
    let queued = queue > (e.min_rtt * 0.25).max(0.001);
    let segments = sent as f64 / f64::from(e.socket.mss.max(1)) + e.socket.retransmits as f64;
    let loss = e.socket.retransmits as f64 / segments.max(1.0);
    let limit = if window >= MAIN && window >= buffer && window >= idle {
        Limit::ReceiveWindow
    } else if buffer >= MAIN && buffer >= idle {
        Limit::SendBuffer
    } else if idle > 0.5 {
        Limit::Application
    } else if queued || loss <= FEW_LOSSES {
        Limit::Path
    } else {
        Limit::CongestionControl
    };
    let mut diagnosis =
        Diagnosis { limit, shares: [idle, window, buffer, cwnd], goodput, needed: None, words: Vec::new() };
    diagnosis.explain(e, queue.max(0.0), queued, loss);
    diagnosis
}

impl Diagnosis {
    fn explain(&mut self, e: &Evidence, queue: f64, queued: bool, loss: f64) {
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let [idle, window, buffer, cwnd] = self.shares;
        let rtt = if e.min_rtt > 0.0 { e.min_rtt } else { e.rtt };
        let say = &mut self.words;
        match self.limit {
            Limit::Application => say.push(format!(
                "limited by the application: in {} of the time there was nothing to send; the network was not the limit",
                percent(idle)
            )),
            Limit::ReceiveWindow => {
                let most = e.largest_window as f64 * 8.0 / rtt.max(1e-6);
                say.push(format!(
                    "limited by the receiver's window in {} of the time: it announced at most {} ({} bytes), which at {} of RTT allows {}",
                    percent(window),
                    bytes(e.largest_window),
                    e.largest_window,
                    millis(rtt),
                    rate(most)
                ));
                let (capacity, known) = match e.capacity {
                    Some(capacity) => (capacity.max(self.goodput), true),
                    None => (self.goodput * 10.0, false),
                };
                let needed = buffer_for(capacity, rtt);
                self.needed = Some(needed);
                let what = if known {
                    format!("several streams together carried {}", rate(capacity))
                } else {
                    format!("for ten times the rate, {}", rate(capacity))
                };
                say.push(format!(
                    "{what}: the bandwidth-delay product is {}, so the receiver needs net.ipv4.tcp_rmem with a third value of at least {needed}",
                    bytes((capacity / 8.0 * rtt) as u64)
                ));
                if let Some(rmem) = &e.receiver_rmem {
                    say.push(format!("at the receiver, net.ipv4.tcp_rmem is {}", rmem.split_whitespace().collect::<Vec<_>>().join(" ")));
                }
                say.push("an application that sets SO_RCVBUF, or reads slowly, limits the window as well".into());
            }
            Limit::SendBuffer => {
                let capacity = e.capacity.unwrap_or(self.goodput * 2.0).max(self.goodput);
                let needed = buffer_for(capacity, rtt);
                self.needed = Some(needed);
                say.push(format!("limited by the sender's buffer in {} of the time", percent(buffer)));
                say.push(format!(
                    "for {} at {} of RTT the sender needs net.ipv4.tcp_wmem with a third value of at least {needed}, or no SO_SNDBUF of its own",
                    rate(capacity),
                    millis(rtt)
                ));
                if let Some(wmem) = &e.sender_wmem {
                    say.push(format!("at the sender, net.ipv4.tcp_wmem is {}", wmem.split_whitespace().collect::<Vec<_>>().join(" ")));
                }
            }
            Limit::CongestionControl => {
                say.push(format!(
                    "limited by congestion control: {} held its window at {} in {} of the time because of {:.2} % losses, although no queue stood in the path",
                    e.socket.controller,
                    bytes(e.socket.cwnd),
                    percent(cwnd),
                    loss * 100.0
                ));
                say.push("such losses do not mean that the path is full: compare with a controller that does not believe so (`fullpipe test HOST --compare bbr,cubic`)".into());
            }
            Limit::Path if queued => say.push(format!(
                "limited by the path: it was full, with {} of queue on top of {} of RTT; {} is what it carries for this flow",
                millis(queue),
                millis(rtt),
                rate(self.goodput)
            )),
            Limit::Path => say.push(format!(
                "limited by the path, or by {}'s pacing to it: nothing was lost, nobody's buffer was in the way; {} is what it carries for this flow",
                e.socket.controller,
                rate(self.goodput)
            )),
        }
    }
}

/// A buffer for `capacity` bit/s at `rtt` seconds: twice the bandwidth-delay product, because the kernel
/// keeps about half of a buffer for its own bookkeeping (`tcp_win_from_space`), in whole 4-kB pages.
fn buffer_for(capacity: f64, rtt: f64) -> u64 {
    ((capacity / 8.0 * rtt * 2.0) as u64).next_multiple_of(4096)
}

/// A receiver's view, for transfers whose sender cannot be asked.
#[derive(Clone, Debug, Default)]
pub struct ReceiverEvidence {
    /// Seconds from the first to the last byte.
    pub seconds: f64,
    /// Bytes that arrived.
    pub bytes: u64,
    /// Seconds in which the application did not wait for the network.
    pub away: f64,
    /// The largest window announced, bytes.
    pub window: u64,
    /// RTT as the receiver estimates it, or of the handshake, seconds.
    pub rtt: f64,
    /// Segments that arrived out of order.
    pub out_of_order: u64,
}

/// What limited a download, as far as its receiver can know.
pub fn diagnose_receiver(e: &ReceiverEvidence) -> String {
    let seconds = e.seconds.max(1e-6);
    let goodput = e.bytes as f64 * 8.0 / seconds;
    let used = goodput / 8.0 * e.rtt / (e.window as f64).max(1.0);
    if e.away / seconds > 0.5 {
        return format!("limited here: writing took {:.0} % of the time", e.away / seconds * 100.0);
    }
    if used > 0.8 && e.rtt > 0.0005 {
        return format!(
            "limited by our receive window: {} at {} of RTT allow {}; for ten times that, net.ipv4.tcp_rmem needs a third value of {}",
            bytes(e.window),
            millis(e.rtt),
            rate(e.window as f64 * 8.0 / e.rtt),
            buffer_for(goodput * 10.0, e.rtt)
        );
    }
    if e.out_of_order > 0 {
        return format!(
            "limited by the sender's congestion control or by the path: {} segments came out of order or were lost before",
            e.out_of_order
        );
    }
    "limited by the sender or by the path: nothing was lost and our window was not full".into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evidence(busy: f64, window: f64, buffer: f64, retransmits: u64) -> Evidence {
        let us = |seconds: f64| Some((seconds * 1e6) as u64);
        Evidence {
            seconds: 10.0,
            socket: SocketSample {
                controller: "cubic".into(),
                busy_us: us(busy),
                rwnd_limited_us: us(window),
                sndbuf_limited_us: us(buffer),
                bytes_acked: Some(12_500_000),
                retransmits,
                mss: 1448,
                cwnd: 100_000,
                ..SocketSample::default()
            },
            largest_window: 65_536,
            min_rtt: 0.1,
            rtt: 0.101,
            ..Evidence::default()
        }
    }

    #[test]
    fn a_full_window_is_named_with_the_buffer_it_takes() {
        let e = Evidence {
            capacity: Some(100e6),
            receiver_rmem: Some("4096\t65536\t131072\n".into()),
            ..evidence(10.0, 9.0, 0.0, 0)
        };
        let d = diagnose(&e);
        assert_eq!(d.limit, Limit::ReceiveWindow);
        // 100 Mbit/s × 100 ms = 1.25 MB; twice that in pages.
        assert_eq!(d.needed, Some(2_502_656));
        let text = d.words.join("\n");
        for part in ["65.5 kB", "2502656", "tcp_rmem", "4096 65536 131072", "1.25 MB"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn each_limit_is_told_from_the_others() {
        assert_eq!(diagnose(&evidence(2.0, 0.0, 0.0, 0)).limit, Limit::Application);
        assert_eq!(diagnose(&evidence(10.0, 1.0, 6.0, 0)).limit, Limit::SendBuffer);
        assert_eq!(diagnose(&evidence(10.0, 0.0, 0.0, 86)).limit, Limit::CongestionControl);
        assert_eq!(diagnose(&evidence(10.0, 0.0, 0.0, 0)).limit, Limit::Path);
        let full = Evidence { rtt: 0.2, ..evidence(10.0, 0.0, 0.0, 86) };
        assert_eq!(diagnose(&full).limit, Limit::Path, "losses of a full queue are the path's");
        assert_eq!(diagnose(&Evidence::default()).limit, Limit::Application);
    }

    #[test]
    fn a_receiver_knows_its_own_window_and_its_own_slowness() {
        let e = ReceiverEvidence {
            seconds: 10.0,
            bytes: 6_000_000,
            window: 65_536,
            rtt: 0.1,
            ..Default::default()
        };
        assert!(diagnose_receiver(&e).contains("our receive window"));
        assert!(diagnose_receiver(&ReceiverEvidence { away: 9.0, ..e.clone() }).contains("limited here"));
        assert!(
            diagnose_receiver(&ReceiverEvidence { window: 4 << 20, ..e.clone() })
                .contains("sender or by the path")
        );
        assert!(
            diagnose_receiver(&ReceiverEvidence { window: 4 << 20, out_of_order: 5, ..e })
                .contains("out of order")
        );
    }
}
