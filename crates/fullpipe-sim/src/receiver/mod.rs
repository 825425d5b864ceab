//! The receiving end of a connection: reassembly, acknowledgements, receive window.

mod ack_frequency;
mod acks;
mod reassembly;
mod replayed;
mod tuning;
mod window;

use crate::segment::{Kind, NO_SACK, SackInfo, SackStore, Segment};
use ack_frequency::RequestedPolicy;
use acks::AckPolicy;
use fullpipe_cc::{Span, Time};
use fullpipe_experiment::scenario::{App, FlowSpec};
use reassembly::{Arrival, Reassembly};
pub use replayed::ReceiverBehaviour;
use replayed::ReplayedReceiver;
use tuning::TunedWindow;
use window::ReceiveWindow;

/// The policy that decides when to acknowledge.
#[derive(Debug)]
enum Policy {
    Linux(AckPolicy),
    Requested(Box<RequestedPolicy>),
}

/// The model of the receive window.
#[derive(Debug)]
enum Window {
    Plain(ReceiveWindow),
    Tuned(Box<TunedWindow>),
    Replayed(Box<ReplayedReceiver>),
}

#[derive(Debug)]
pub(crate) struct Receiver {
    queue: Reassembly,
    arrived: u64,
    policy: Policy,
    window: Window,
    /// The application is interactive: it sends requests (`inet_csk_in_pingpong_mode`).
    is_interactive: bool,
    /// Timestamp echo of the next ACK (RFC 7323 §4.3).
    echo: Time,
    last_ack: u64,
    dsack: Option<(u64, u64)>,
    marked: u16,
}

impl Receiver {
    /// The receiver of a flow's segments of up to `smss` payload bytes.
    pub fn new(smss: u32, flow: &FlowSpec) -> Self {
        let policy = match flow.ack_frequency {
            None => Policy::Linux(AckPolicy::new(smss)),
            Some(requested) => Policy::Requested(Box::new(RequestedPolicy::new(requested))),
        };
        let buffer = flow.receive_buffer.map(|b| b.0);
        let window = match flow.auto_tuning {
            false => Window::Plain(ReceiveWindow::new(smss, buffer)),
            true => {
                let first = flow.first_receive_buffer.map(|b| b.0);
                Window::Tuned(Box::new(TunedWindow::new(smss, first, buffer)))
            }
        };
        Receiver {
            queue: Reassembly::default(),
            arrived: 0,
            policy,
            window,
            is_interactive: matches!(flow.app, App::RequestResponse { .. }),
            echo: Time::ZERO,
            last_ack: 0,
            dsack: None,
            marked: 0,
        }
    }

    /// Replays the observed `behaviour` of another receiver, unless it is empty.
    pub fn replay(&mut self, behaviour: &[ReceiverBehaviour]) {
        let Some(replayed) = ReplayedReceiver::new(behaviour) else { return };
        if let Policy::Linux(policy) = &mut self.policy {
            policy.end_quick_acks();
        }
        self.window = Window::Replayed(Box::new(replayed));
    }

    /// Payload bytes delivered in order to the application.
    pub fn delivered(&self) -> u64 {
        self.queue.next_bytes()
    }

    /// Payload bytes that have arrived, in order or beyond a hole, each counted once.
    pub fn arrived(&self) -> u64 {
        self.arrived
    }

    /// When an ACK is due at the latest.
    pub fn ack_due(&self) -> Time {
        match &self.policy {
            Policy::Linux(policy) => policy.due(),
            Policy::Requested(policy) => policy.due(),
        }
    }

    /// The right edge of the first window, advertised in the handshake.
    pub fn initial_edge(&mut self) -> u64 {
        match &mut self.window {
            Window::Plain(window) => window.edge(0),
            Window::Tuned(window) => window.initial_edge(),
            Window::Replayed(window) => window.edge(0, 0),
        }
    }

    /// The handshake is complete on this end.
    pub fn opens(&mut self, now: Time) {
        if let Window::Tuned(window) = &mut self.window {
            window.opens(now);
        }
    }

    /// Whether an ACK is held back and must be sent before `data` is processed: `data` changes more
    /// runs than one ACK reports (`tcp_sack_compress_send_ack`).
    #[inline]
    pub fn must_acknowledge_before(&self, data: &Segment) -> bool {
        matches!(&self.policy, Policy::Linux(policy) if policy.holds_ack())
            && self.queue.must_report_before(data.seq)
    }

    /// Processes a data segment, `marked` if it has the CE codepoint; `rtt` is the sender's
    /// smoothed RTT. Returns whether to acknowledge at once.
    #[inline]
    pub fn on_data(&mut self, now: Time, data: &Segment, marked: bool, rtt: Option<Span>) -> bool {
        if data.seq <= self.last_ack {
            self.echo = data.stamp;
        }
        self.marked = self.marked.saturating_add(u16::from(marked));
        let arrival = self.queue.insert(data.seq, data.edge);
        if arrival != Arrival::Duplicate {
            self.arrived += u64::from(data.detail);
        }
        if arrival == Arrival::Duplicate {
            self.dsack = Some((data.seq, data.seq + 1));
        }
        let (grows, ends) = match &mut self.window {
            Window::Plain(window) => {
                if let Arrival::InOrder { .. } = arrival {
                    window.on_read(now, self.queue.next_bytes(), rtt);
                }
                (false, false)
            }
            Window::Tuned(window) => {
                let len = u64::from(data.detail);
                let grows = window.on_data(now, len, arrival, self.arrived, &self.queue, rtt);
                // The application has read everything, and the last segment was pushed or short
                // (`tcp_measure_rcv_mss`, `tcp_cleanup_rbuf`).
                let ends =
                    !self.is_interactive && (data.push || len < window.largest()) && !self.queue.has_hole();
                (grows, ends)
            }
            Window::Replayed(window) => {
                if let Policy::Linux(policy) = &mut self.policy {
                    policy.set_segments_per_ack(window.at(self.arrived).segments_per_ack);
                }
                (false, false)
            }
        };
        match &mut self.policy {
            Policy::Linux(policy) => {
                let has_hole = self.queue.has_hole();
                if grows {
                    policy.on_window_growth();
                }
                policy.on_data(now, arrival, self.queue.next_bytes(), has_hole, marked, rtt) || ends
            }
            Policy::Requested(policy) => policy.on_data(now, data.seq, arrival, marked, &self.queue),
        }
    }

    /// Creates the ACK for everything that has arrived; the caller sends it.
    #[inline]
    pub fn acknowledge(&mut self, sacks: &mut SackStore) -> Segment {
        let next_bytes = self.queue.next_bytes();
        match &mut self.policy {
            Policy::Linux(policy) => policy.on_sent(next_bytes),
            Policy::Requested(policy) => policy.on_sent(&self.queue),
        }
        self.last_ack = self.queue.next();
        let mut detail = NO_SACK;
        if self.queue.has_hole() || self.dsack.is_some() {
            let mut info = SackInfo::default();
            info.dsack = self.dsack.take();
            self.queue.report(&mut info);
            detail = sacks.put(info);
        }
        let edge = match &mut self.window {
            Window::Plain(window) => window.edge(next_bytes),
            Window::Tuned(window) => window.edge(self.arrived, &self.queue),
            Window::Replayed(window) => window.edge(next_bytes, self.arrived),
        };
        Segment {
            seq: self.last_ack,
            stamp: self.echo,
            edge,
            detail,
            ce: std::mem::take(&mut self.marked),
            kind: Kind::Ack,
            push: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_units::Bytes;

    fn data(seq: u64, sent_ms: u64) -> Segment {
        Segment {
            seq,
            stamp: Time::ZERO + Span::from_millis(sent_ms),
            edge: (seq + 1) * 1000,
            detail: 1000,
            ce: 0,
            kind: Kind::Data,
            push: false,
        }
    }

    #[test]
    fn a_hole_is_reported_and_the_echo_is_that_of_the_last_segment_in_order() {
        let mut sacks = SackStore::default();
        let mut r = Receiver::new(1000, &FlowSpec::bulk("cubic"));
        let now = Time::ZERO + Span::from_millis(60);
        for seq in [0, 1, 3, 4] {
            assert!(r.on_data(now, &data(seq, seq), false, None));
        }
        let ack = r.acknowledge(&mut sacks);
        assert_eq!((ack.seq, ack.stamp), (2, Time::ZERO));
        assert_eq!(sacks.remove(ack.detail).blocks(), [(3, 5)]);
        r.on_data(now, &data(2, 50), true, None);
        let ack = r.acknowledge(&mut sacks);
        assert_eq!((ack.seq, ack.detail, ack.ce), (5, NO_SACK, 1));
        assert_eq!(ack.stamp, Time::ZERO + Span::from_millis(50));
        assert_eq!(r.delivered(), 5000);
        // The same segment again: one DSACK.
        assert!(r.on_data(now, &data(3, 55), false, None));
        let ack = r.acknowledge(&mut sacks);
        assert_eq!(sacks.remove(ack.detail).dsack, Some((3, 4)));
        assert_eq!(sacks.in_use(), 0);
    }

    /// The numbers of those `segments` at which the receiver acknowledges.
    fn acknowledges_at(flow: &FlowSpec, segments: impl Iterator<Item = Segment>) -> Vec<u64> {
        let mut sacks = SackStore::default();
        let mut r = Receiver::new(1000, flow);
        let rtt = Some(Span::from_millis(100));
        let at_once = segments.filter(|segment| {
            let at_once = r.on_data(segment.stamp, segment, false, rtt);
            if at_once {
                r.acknowledge(&mut sacks);
            }
            at_once
        });
        at_once.map(|segment| segment.seq).collect()
    }

    /// Bursts of three segments: the second and the last are acknowledged, unless the application
    /// is interactive (Linux 6.18, captures at the lab's ends).
    #[test]
    fn the_end_of_a_burst_is_acknowledged_when_it_is_read() {
        let segments = || (0..300).map(|seq| Segment { push: seq % 3 == 2, ..data(seq, seq / 30) });
        let tuned = FlowSpec {
            auto_tuning: true,
            first_receive_buffer: Some(Bytes(65_536)),
            receive_buffer: Some(Bytes(65_536)),
            ..FlowSpec::bulk("cubic")
        };
        let app = App::RequestResponse {
            request: Bytes(100),
            response: Bytes(300_000),
            think: Span::from_millis(1),
        };
        let interactive = FlowSpec { app, ..tuned.clone() };
        let late = |flow: &FlowSpec| {
            acknowledges_at(flow, segments()).into_iter().filter(|seq| *seq >= 270).collect::<Vec<_>>()
        };
        let each_third =
            |which: [u64; 2]| (90..100).flat_map(|n| which.map(|i| 3 * n + i)).collect::<Vec<_>>();
        assert_eq!(late(&tuned), each_third([1, 2]));
        assert_eq!(late(&interactive).len(), 15);
    }

    /// The SACK blocks of every ACK, duplicate report first, as `segments` arrive within a
    /// compression interval.
    fn reports(r: &mut Receiver, segments: impl IntoIterator<Item = u64>) -> Vec<Vec<(u64, u64)>> {
        let mut sacks = SackStore::default();
        let (now, rtt) = (Time::ZERO + Span::from_secs(1), Some(Span::from_millis(100)));
        let mut reported = Vec::new();
        for seq in segments {
            let data = data(seq, 900);
            let mut acknowledge = |r: &mut Receiver| {
                let ack = r.acknowledge(&mut sacks);
                let info = sacks.remove(ack.detail);
                reported.push(info.dsack.iter().chain(info.blocks()).copied().collect());
            };
            if r.must_acknowledge_before(&data) {
                acknowledge(r);
            }
            if r.on_data(now, &data, false, rtt) {
                acknowledge(r);
            }
        }
        reported
    }

    /// A receiver with runs of two segments after each of the `holes` at 10, 20, ..., whose last
    /// changes have been reported and which now compresses ACKs.
    fn compressing(holes: u64) -> Receiver {
        let mut r = Receiver::new(1000, &FlowSpec::bulk("cubic"));
        let early = data(0, 0);
        for seq in (0..10).chain((1..=holes).flat_map(|hole| [10 * hole + 1, 10 * hole + 2])) {
            r.on_data(early.stamp, &data(seq, 0), false, Some(Span::from_millis(100)));
            r.acknowledge(&mut SackStore::default());
        }
        // Quick ACKs are over, and so are the duplicate ACKs that are sent singly.
        assert!(reports(&mut r, (0..40).map(|n| 10 * holes + 3 + n)).len() < 40);
        r.acknowledge(&mut SackStore::default());
        r
    }

    /// `tcp_sack_new_ofo_skb`: an ACK that is held back leaves before a third run changes, whether
    /// the run is new or a retransmission extends it or fills the hole between two.
    #[test]
    fn a_held_back_ack_is_sent_before_more_runs_change_than_it_reports() {
        let mut r = compressing(6);
        // Retransmissions extend the runs at 11, 21, 31 and 41: each ACK reports the last two and one
        // before.
        assert_eq!(
            reports(&mut r, [13, 23, 33, 43]),
            [
                vec![(11, 14), (61, 103), (51, 53)],
                vec![(21, 24), (11, 14), (61, 103)],
                vec![(31, 34), (21, 24), (11, 14)],
            ]
        );
        // The last one changed again, and the one before: nothing has to be reported before that.
        assert!(reports(&mut r, [44, 34, 45, 35]).is_empty());
        // A new run, and one that joins two old ones.
        assert_eq!(reports(&mut r, [120]), [vec![(31, 36), (41, 46), (21, 24)]]);
        for seq in [15, 16, 17, 18, 19, 20] {
            reports(&mut r, [seq]);
        }
        r.on_data(Time::ZERO, &data(14, 0), false, None);
        let ack = r.acknowledge(&mut SackStore::default());
        assert_eq!(ack.seq, 10, "the first hole is open");
    }

    /// RFC 2883 §4: the run of a duplicate follows its report.
    #[test]
    fn a_duplicate_is_reported_with_its_run() {
        let mut r = compressing(6);
        assert_eq!(reports(&mut r, [22]), [[(22, 23), (21, 23), (61, 103)]]);
    }
}
