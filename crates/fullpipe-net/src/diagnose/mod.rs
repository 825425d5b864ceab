//! Diagnoses what limits a transfer: the application, the receiver's window, the send buffer, the
//! congestion controller or the path. Pure functions of a sender's counters.
//!
//! The kernel tracks (`tcp_chrono_start`) how long a sender with data waited for the peer's window
//! and for its own buffer. The remainder is limited by the path or by the congestion window, by the
//! rule of `fullpipe watch` ([`PathSender::is_path_limited`]).

mod observe;

pub(crate) use observe::setting;
pub use observe::{Observed, evidence, process, server};

use crate::client::table::{bytes, millis, rate};
use crate::sample::SocketSample;
use fullpipe_kernel::tcp_info::{PathSender, V3_LOSS_THRESHOLD};
use fullpipe_units::{Rate, Span};

/// What limits a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The sender had no data to send.
    Application,
    /// The receiver's window was full.
    ReceiveWindow,
    /// The sender's buffer was too small.
    SendBuffer,
    /// The controller held back although the path had capacity.
    CongestionControl,
    /// The path was full.
    Path,
}

/// Observations of a sender.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// Observation time, seconds.
    pub seconds: f64,
    /// The socket at the end, with counters since the start of the observation.
    pub socket: SocketSample,
    /// Largest window announced by the receiver, bytes.
    pub largest_window: u64,
    /// Minimum RTT, seconds; 0 if unknown.
    pub min_rtt: f64,
    /// Typical RTT under this load, seconds.
    pub rtt: f64,
    /// Goodput of several streams over the same path, bit/s.
    pub capacity: Option<f64>,
    /// The receiver's `net.ipv4.tcp_rmem`, if known.
    pub receiver_rmem: Option<String>,
    /// The sender's `net.ipv4.tcp_wmem`, if known.
    pub sender_wmem: Option<String>,
}

/// A diagnosis.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Diagnosis {
    /// The main limit.
    pub limit: Limit,
    /// Shares of time limited by application, receive window, send buffer and congestion window.
    pub shares: [f64; 4],
    /// Goodput, bit/s.
    pub goodput: f64,
    /// The receive or send buffer that would be sufficient, bytes.
    pub needed: Option<u64>,
    /// Explanation: the finding first, then what to do.
    pub explanation: Vec<String>,
}

/// Share of time from which a limit is the main one.
const MAIN_SHARE: f64 = 0.3;
/// Losses below this share do not limit a controller on ordinary paths (Mathis et al. 1997: at 100
/// ms and 1460 bytes Reno still reaches 10 Mbit/s).
const LOW_LOSS: f64 = 0.0002;

/// Diagnoses a sender.
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
    let min_rtt = (e.min_rtt > 0.0).then(|| Span::from_secs_f64(e.min_rtt));
    let segments = sent as f64 / f64::from(e.socket.mss.max(1)) + e.socket.retransmits as f64;
    let loss = e.socket.retransmits as f64 / segments.max(1.0);
    let sender = PathSender {
        controller: &e.socket.controller,
        has_model: e.socket.bbr_bw.is_some(),
        bbr_version: e.socket.bbr_version,
        bw_lo: e.socket.bbr_bw_lo.map(Rate::from_bytes_per_sec),
        bw_hi: e.socket.bbr_bw_hi.map(Rate::from_bytes_per_sec),
        loss,
        srtt: Span::from_secs_f64(e.rtt.max(0.0)),
        min_rtt,
    };
    let standing = sender.has_queue().then_some(e.rtt - e.min_rtt);
    let limit = if window >= MAIN_SHARE && window >= buffer && window >= idle {
        Limit::ReceiveWindow
    } else if buffer >= MAIN_SHARE && buffer >= idle {
        Limit::SendBuffer
    } else if idle > 0.5 {
        Limit::Application
    } else if sender.is_path_limited() || (loss <= LOW_LOSS && !sender.responds_to_loss()) {
        Limit::Path
    } else {
        Limit::CongestionControl
    };
    let mut diagnosis = Diagnosis {
        limit,
        shares: [idle, window, buffer, cwnd],
        goodput,
        needed: None,
        explanation: Vec::new(),
    };
    diagnosis.explain(e, &sender, standing);
    diagnosis.explanation.extend(model(&e.socket));
    diagnosis
}

impl Diagnosis {
    fn explain(&mut self, e: &Evidence, sender: &PathSender<'_>, standing: Option<f64>) {
        let loss = sender.loss;
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let [idle, window, buffer, cwnd] = self.shares;
        let rtt = if e.min_rtt > 0.0 { e.min_rtt } else { e.rtt };
        let text = &mut self.explanation;
        match self.limit {
            Limit::Application => text.push(format!(
                "limited by the application: no data to send for {} of the time; the network was not the \
                    limit",
                percent(idle)
            )),
            Limit::ReceiveWindow => {
                let most = e.largest_window as f64 * 8.0 / rtt.max(1e-6);
                text.push(format!(
                    "limited by the receiver's window for {} of the time: at most {} ({} bytes) \
                        announced, which allows {4} at an RTT of {3}",
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
                    format!("several streams together reached {}", rate(capacity))
                } else {
                    format!("for ten times the rate, {}", rate(capacity))
                };
                text.push(format!(
                    "{what}: the bandwidth-delay product is {}, so set the third value of \
                        net.ipv4.tcp_rmem at the receiver to at least {needed}",
                    bytes((capacity / 8.0 * rtt) as u64)
                ));
                if let Some(rmem) = &e.receiver_rmem {
                    text.push(format!(
                        "at the receiver, net.ipv4.tcp_rmem is \
                        {}",
                        rmem.split_whitespace().collect::<Vec<_>>().join(" ")
                    ));
                }
                text.push(
                    "an application that sets SO_RCVBUF, or reads slowly, limits the window as \
                    well"
                        .into(),
                );
            }
            Limit::SendBuffer => {
                let capacity = e.capacity.unwrap_or(self.goodput * 2.0).max(self.goodput);
                let needed = buffer_for(capacity, rtt);
                self.needed = Some(needed);
                text.push(format!("limited by the send buffer for {} of the time", percent(buffer)));
                text.push(format!(
                    "for {} at an RTT of {}, set the third value of net.ipv4.tcp_wmem at the sender to \
                        at least {needed}, or remove its SO_SNDBUF",
                    rate(capacity),
                    millis(rtt)
                ));
                if let Some(wmem) = &e.sender_wmem {
                    text.push(format!(
                        "at the sender, net.ipv4.tcp_wmem is \
                        {}",
                        wmem.split_whitespace().collect::<Vec<_>>().join(" ")
                    ));
                }
            }
            Limit::CongestionControl if sender.responds_to_loss() => {
                text.extend(response_to_loss(sender, self.goodput));
            }
            Limit::CongestionControl => {
                text.push(format!(
                    "limited by congestion control: {} held its window at {} for {} of the time because \
                        of {:.2} % loss, without a standing queue",
                    e.socket.controller,
                    bytes(e.socket.cwnd),
                    percent(cwnd),
                    loss * 100.0
                ));
                text.push(
                    "this loss is not congestion; compare with a controller that tolerates loss \
                    (`fullpipe test HOST --compare bbr,cubic`)"
                        .into(),
                );
            }
            Limit::Path => text.push(path(e, self.goodput, standing, loss)),
        }
    }
}

/// Why BBR v3's response to loss is the limit, and what to do.
fn response_to_loss(sender: &PathSender<'_>, goodput: f64) -> [String; 2] {
    let controller = sender.controller;
    let above = if sender.loss > V3_LOSS_THRESHOLD {
        format!(", above its threshold of {:.0} %", V3_LOSS_THRESHOLD * 100.0)
    } else {
        String::new()
    };
    let bits = |rate: Rate| rate_text(rate.as_bytes_per_sec());
    let bounds = sender.bw_lo.zip(sender.bw_hi).filter(|(lo, hi)| lo < hi);
    let bounded = bounds.map_or_else(String::new, |(lo, hi)| {
        format!(", and its short-term bandwidth bound is {}, below the measured {}", bits(lo), bits(hi))
    });
    [
        format!(
            "limited by congestion control: {controller} is BBR v3, which slows down after loss: {:.2} % of \
             its segments were retransmitted{above}{bounded}, without a standing queue; this flow's share is \
             {}",
            sender.loss * 100.0,
            rate(goodput)
        ),
        "BBR v1 does not slow down at this loss rate; measure both (`fullpipe advise HOST bbr bbr3`)".into(),
    ]
}

/// Why the path is the limit; `standing` is the delay of a standing queue.
fn path(e: &Evidence, goodput: f64, standing: Option<f64>, loss: f64) -> String {
    let (controller, share) = (&e.socket.controller, rate(goodput));
    match standing {
        Some(queue) => format!(
            "limited by the path: it was full, with {} of queueing delay on top of an RTT of {}; this \
             flow's share is {share}",
            millis(queue),
            millis(e.min_rtt)
        ),
        None if loss <= LOW_LOSS => format!(
            "limited by the path, or by {controller}'s pacing: no loss and no buffer limit; this flow's \
             share is {share}"
        ),
        None => format!(
            "limited by the path: {controller} paces at the bandwidth that it measures, without a standing \
             queue; this flow's share is {share}, {:.2} % of its segments were retransmitted",
            loss * 100.0
        ),
    }
}

/// A rate in bytes per second, as text.
fn rate_text(bytes: u64) -> String {
    rate(bytes as f64 * 8.0)
}

/// The state of the sender's BBR in a sentence, if it reports one.
fn model(socket: &SocketSample) -> Option<String> {
    let bits = rate_text;
    let bw = socket.bbr_bw.filter(|bw| *bw > 0)?;
    let version = socket.bbr_version.map_or_else(String::new, |version| format!(" v{version}"));
    let state = socket.bbr_mode.as_deref().unwrap_or("an unknown state");
    let mut text = format!("{} is BBR{version} in {state}, with a bandwidth estimate of ", socket.controller);
    text += &bits(bw);
    for (name, bound) in [
        ("long-term bandwidth bound", socket.bbr_bw_hi.map(bits)),
        ("short-term bandwidth bound", socket.bbr_bw_lo.map(bits)),
        ("long-term inflight bound", socket.bbr_inflight_hi.map(bytes)),
        ("short-term inflight bound", socket.bbr_inflight_lo.map(bytes)),
    ] {
        text += &bound.map_or_else(String::new, |bound| format!(", {name} {bound}"));
    }
    Some(text)
}

/// The buffer for `capacity` bit/s at `rtt` seconds: twice the BDP, because the kernel uses about
/// half of a buffer for overhead (`tcp_win_from_space`), in whole 4-kB pages.
fn buffer_for(capacity: f64, rtt: f64) -> u64 {
    ((capacity / 8.0 * rtt * 2.0) as u64).next_multiple_of(4096)
}

/// A receiver's observations, for senders that cannot be queried.
#[derive(Clone, Debug, Default)]
pub struct ReceiverEvidence {
    /// Seconds from the first to the last byte.
    pub seconds: f64,
    /// Bytes received.
    pub bytes: u64,
    /// Seconds the application spent writing and hashing.
    pub busy_writing: f64,
    /// Largest window announced, bytes.
    pub window: u64,
    /// The receiver's RTT estimate, or that of the handshake, seconds.
    pub rtt: f64,
    /// Segments received out of order.
    pub out_of_order: u64,
}

/// Diagnoses a download, as far as its receiver can know.
pub fn diagnose_receiver(e: &ReceiverEvidence) -> String {
    let seconds = e.seconds.max(1e-6);
    let goodput = e.bytes as f64 * 8.0 / seconds;
    let used = goodput / 8.0 * e.rtt / (e.window as f64).max(1.0);
    if e.busy_writing / seconds > 0.5 {
        return format!(
            "limited locally: writing took {:.0} % of the time",
            e.busy_writing / seconds * 100.0
        );
    }
    if used > 0.8 && e.rtt > 0.0005 {
        return format!(
            "limited by the local receive window: {} at an RTT of {} allow {}; for ten times that, set \
                the third value of net.ipv4.tcp_rmem to {}",
            bytes(e.window),
            millis(e.rtt),
            rate(e.window as f64 * 8.0 / e.rtt),
            buffer_for(goodput * 10.0, e.rtt)
        );
    }
    if e.out_of_order > 0 {
        return format!(
            "limited by the sender's congestion control or by the path: {} segments arrived out of order \
                or after a loss",
            e.out_of_order
        );
    }
    "limited by the sender or by the path: no loss, and the local window was not full".into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_kernel::tcp_info::CcInfo;

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
    fn a_full_receive_window_is_diagnosed_with_the_needed_buffer() {
        let e = Evidence {
            capacity: Some(100e6),
            receiver_rmem: Some("4096\t65536\t131072\n".into()),
            ..evidence(10.0, 9.0, 0.0, 0)
        };
        let d = diagnose(&e);
        assert_eq!(d.limit, Limit::ReceiveWindow);
        // 100 Mbit/s × 100 ms = 1.25 MB; twice that in pages.
        assert_eq!(d.needed, Some(2_502_656));
        let text = d.explanation.join("\n");
        for part in ["65.5 kB", "2502656", "tcp_rmem", "4096 65536 131072", "1.25 MB"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn each_limit_is_distinguished() {
        assert_eq!(diagnose(&evidence(2.0, 0.0, 0.0, 0)).limit, Limit::Application);
        assert_eq!(diagnose(&evidence(10.0, 1.0, 6.0, 0)).limit, Limit::SendBuffer);
        assert_eq!(diagnose(&evidence(10.0, 0.0, 0.0, 86)).limit, Limit::CongestionControl);
        assert_eq!(diagnose(&evidence(10.0, 0.0, 0.0, 0)).limit, Limit::Path);
        let full = Evidence { rtt: 0.2, ..evidence(10.0, 0.0, 0.0, 86) };
        assert_eq!(diagnose(&full).limit, Limit::Path, "losses of a full queue are the path's");
        assert_eq!(diagnose(&Evidence::default()).limit, Limit::Application);
    }

    #[test]
    fn bbr_v3_that_loses_much_is_limited_by_its_response_to_loss() {
        // 5 % loss on a path of 20 Mbit/s (measured in docs/evidence): 7 Mbit/s.
        let mut e = Evidence { min_rtt: 0.040, rtt: 0.041, ..evidence(10.0, 0.0, 0.0, 318) };
        (e.socket.bytes_acked, e.socket.controller) = (Some(8_750_000), "fp_bbr3".into());
        let d = diagnose(&e);
        assert_eq!(d.limit, Limit::CongestionControl);
        let text = d.explanation.join("\n");
        for part in [
            "fp_bbr3 is BBR v3",
            "5.00 % of its segments",
            "threshold of 2 %",
            "7.00 Mbit/s",
            "`fullpipe advise HOST bbr bbr3`",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("short-term") && !text.contains("paces at"), "{text}");
        // A kernel's own v3, by its version and its bounds; without its bound its loss is below 2 %.
        (e.socket.controller, e.socket.retransmits) = ("bbr".into(), 1);
        (e.socket.bbr_version, e.socket.bbr_bw) = (Some(3), Some(1_000_000));
        (e.socket.bbr_bw_hi, e.socket.bbr_bw_lo) = (Some(2_500_000), Some(875_000));
        let text = diagnose(&e).explanation.join("\n");
        assert!(
            text.contains("short-term bandwidth bound is 7.00 Mbit/s, below the measured 20.0 Mbit/s"),
            "{text}"
        );
        assert!(!text.contains("threshold"), "{text}");
        e.socket.bbr_bw_lo = None;
        assert_eq!(diagnose(&e).limit, Limit::Path);
        // v1 at the same loss paces at its estimate, and a standing queue fills the path.
        e.socket.retransmits = 318;
        e.socket.bbr_version = Some(1);
        assert_eq!(diagnose(&e).limit, Limit::Path);
        let full = Evidence { rtt: 0.080, ..e };
        let full = Evidence { socket: SocketSample { bbr_version: Some(3), ..full.socket }, ..full };
        assert!(diagnose(&full).explanation[0].starts_with("limited by the path: it was full"));
    }

    /// The connection of `a_standing_queue_or_a_model_means_bandwidth_limited` in fullpipe-live: always
    /// busy, with an RTT of 41 ms over a minimum of 40 ms.
    #[test]
    fn bbr_near_its_rate_is_limited_by_the_path_as_in_watch() {
        for (bytes, state) in fullpipe_testing::bbr_v3_of_each_phase() {
            let mut e = Evidence { min_rtt: 0.040, rtt: 0.041, ..evidence(10.0, 0.0, 0.0, 86) };
            assert_eq!(diagnose(&e).limit, Limit::CongestionControl, "cubic");
            e.socket.controller = "bbr".into();
            e.socket = e.socket.with_cc_info(CcInfo::decode("bbr", &bytes).as_ref());
            let d = diagnose(&e);
            assert_eq!(d.limit, Limit::Path, "{state}");
            let text = d.explanation.join("\n");
            assert!(text.contains("paces at the bandwidth that it measures"), "{text}");
            assert!(text.contains(&format!("bbr is BBR v3 in {state}, ")), "{text}");
            assert!(text.contains("long-term bandwidth bound 20") && !text.contains("short-term"), "{text}");
        }
        // Without a model, as an eBPF program.
        let mut e = Evidence { min_rtt: 0.040, rtt: 0.041, ..evidence(10.0, 0.0, 0.0, 86) };
        e.socket.controller = "fp_bbr3".into();
        let d = diagnose(&e);
        assert_eq!((d.limit, d.explanation.len()), (Limit::Path, 1));
    }

    #[test]
    fn a_receiver_recognises_its_window_and_its_own_slowness() {
        let e = ReceiverEvidence {
            seconds: 10.0,
            bytes: 6_000_000,
            window: 65_536,
            rtt: 0.1,
            ..Default::default()
        };
        assert!(diagnose_receiver(&e).contains("local receive window"));
        assert!(
            diagnose_receiver(&ReceiverEvidence { busy_writing: 9.0, ..e.clone() })
                .contains("limited locally")
        );
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
