//! fp_bbr3's program, called by hand as a kernel calls it: what it makes of a connection that
//! another controller had, and of calls that are not made (bpf/hosted_bbr3.c).

// The program is in the library's native code.
use fullpipe_ebpf as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// `struct fp_hosted`: what a test says of the socket, and what it then sees of it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Hosted {
    now: u64,
    pacing_rate: u64,
    wstamp_ns: u64,
    mss: u32,
    snd_cwnd: u32,
    snd_ssthresh: u32,
    snd_una: u32,
    snd_nxt: u32,
    packets_out: u32,
    lost_out: u32,
    retrans_out: u32,
    delivered: u32,
    delivered_ce: u32,
    lost: u32,
    srtt_us: u32,
    app_limited: u32,
    ca_state: u32,
    sack_ok: u32,
    is_paced: u32,
    variant: u32,
    end_seq: u32,
    prior_delivered: u32,
    acked_sacked: u32,
    sample_delivered: i32,
    interval_us: u32,
    rtt_us: i32,
    is_ack_delayed: u32,
    core_tx_in_flight: u64,
    core_lost_since: u64,
    core_delivered: u64,
    core_lost: u64,
    core_prior_delivered: u64,
    core_newly_acked: u64,
    core_newly_lost: u64,
    core_initial_cwnd: u64,
    core_prior_cwnd: u64,
    core_next_departure: u64,
    core_inflight_shortterm: u64,
    core_ce_count: u32,
    core_rounds: u32,
    core_mode: u32,
    core_recovery: u32,
    core_has_selective_acks: u32,
    core_is_loss_in_round: u32,
    core_undo_saved: u32,
    core_lost_ranges: u32,
    core_is_ack_delayed: u32,
    has_flow: u32,
}

/// `struct fp_hosted_segment`: a segment of the retransmission queue.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Segment {
    seq: u32,
    end_seq: u32,
    sacked: u32,
    delivered: u32,
    app_limited: u32,
}

/// `struct fp_hosted_lost`: a call of `HandleLostPacket()`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lost {
    bytes: u64,
    tx_in_flight: u64,
    lost: u64,
    app_limited: u64,
}

unsafe extern "C" {
    fn fp_hosted_queue(segments: *const Segment, count: u32, hint: u32);
    fn fp_hosted_told(number: u32, lost: *mut Lost) -> u32;
    fn fp_hosted_call(hosted: *mut Hosted, call: u32, argument: u32) -> u32;
    fn fp_hosted_forget();
}

/// `enum fp_hosted_call`.
#[derive(Clone, Copy)]
enum Call {
    Init = 0,
    Release = 1,
    CongControl = 2,
    SetState = 3,
    Ssthresh = 4,
    UndoCwnd = 5,
}

const MSS: u64 = 1000;
/// A packet every 0.8 ms, and 50 of them in flight: 10 Mbit/s and 40 ms.
const INTERVAL_NS: u64 = 800_000;
const RTT_US: i32 = 40_000;
const INFLIGHT: u32 = 50;
const INFINITE: u32 = 0x7fff_ffff;
const OPEN: u32 = 0;
const CWR: u32 = 2;
const RECOVERY: u32 = 3;
const LOSS: u32 = 4;
const STARTUP: u32 = 0;
const PROBE_BW: std::ops::RangeInclusive<u32> = 2..=5;
const CRUISE: u32 = 3;
const PROBE_RTT: u32 = 6;
/// `enum bbr3_variant`.
const DRAFT: u32 = 0;
const LINUX: u32 = 1;

/// A socket of the program's, the only one at a time.
struct Socket {
    tcp: Hosted,
    _turn: MutexGuard<'static, ()>,
}

impl Socket {
    /// One with this window, which has delivered so many packets on another controller; it has not
    /// chosen the program.
    fn with(snd_cwnd: u32, delivered: u32) -> Socket {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the socket is ours until the turn ends.
        unsafe { fp_hosted_forget() }
        let tcp = Hosted {
            now: 1_000_000_000,
            mss: MSS as u32,
            snd_cwnd,
            snd_ssthresh: INFINITE,
            snd_una: delivered * MSS as u32,
            snd_nxt: (delivered + INFLIGHT) * MSS as u32,
            packets_out: INFLIGHT,
            delivered,
            srtt_us: 8 * RTT_US as u32,
            sack_ok: 1,
            rtt_us: RTT_US,
            ..Hosted::default()
        };
        Socket { tcp, _turn: turn }
    }

    /// A new connection that has chosen it.
    fn new() -> Socket {
        let mut socket = Socket::with(10, 1);
        socket.call(Call::Init, 0);
        socket
    }

    fn call(&mut self, call: Call, argument: u32) -> u32 {
        // SAFETY: the structure is the C side's (`the_structure_is_the_c_sides`), and exclusively borrowed.
        unsafe { fp_hosted_call(&raw mut self.tcp, call as u32, argument) }
    }

    /// One in CRUISE on a controller of this variant.
    fn cruising(variant: u32) -> Socket {
        let mut socket = Socket::with(10, 1);
        socket.tcp.variant = variant;
        socket.call(Call::Init, 0);
        socket.run_to(|mode| mode == CRUISE);
        socket
    }

    /// The next packet is acknowledged; the program is not called.
    fn acknowledge(&mut self) {
        let tcp = &mut self.tcp;
        tcp.now += INTERVAL_NS;
        tcp.delivered += 1;
        tcp.snd_una = tcp.snd_una.wrapping_add(MSS as u32);
        tcp.end_seq = tcp.snd_una;
        tcp.snd_nxt = tcp.snd_nxt.wrapping_add(MSS as u32);
        tcp.acked_sacked = 1;
        tcp.prior_delivered = tcp.delivered.saturating_sub(INFLIGHT);
        tcp.sample_delivered = (tcp.delivered - tcp.prior_delivered) as i32;
        tcp.interval_us = tcp.sample_delivered as u32 * (INTERVAL_NS / 1000) as u32;
    }

    fn ack(&mut self) {
        self.acknowledge();
        self.call(Call::CongControl, 0);
    }

    fn round(&mut self) {
        (0..INFLIGHT).for_each(|_| self.ack());
    }

    /// Loses packets in two rounds; returns the window before and after.
    fn lose_for_two_rounds(&mut self) -> (u32, u32) {
        let before = self.tcp.snd_cwnd;
        for _ in 0..2 {
            self.tcp.lost += 3;
            self.round();
        }
        let bound = self.tcp.snd_cwnd;
        assert!(bound < before, "losses bound the window: {bound} of {before}");
        (before, bound)
    }

    fn run_to(&mut self, is_there: impl Fn(u32) -> bool) {
        for _ in 0..20_000 {
            if is_there(self.tcp.core_mode) {
                return;
            }
            self.ack();
        }
        panic!("it does not come: {:?}", self.tcp);
    }

    /// The kernel's way into a state, and the program is called.
    fn enter(&mut self, state: u32) {
        self.call(Call::SetState, state);
        self.tcp.ca_state = state;
    }
}

#[test]
fn the_structure_is_the_c_sides() {
    let mut socket = Socket::with(10, 100);
    assert_eq!(socket.tcp.has_flow, 0);
    socket.call(Call::Init, 0);
    let seen = socket.tcp;
    assert_eq!((seen.has_flow, seen.core_mode, seen.core_delivered), (1, STARTUP, 100 * MSS), "{seen:?}");
}

/// Rounds go by what the connection has delivered in all, which is what its packets in flight are
/// stamped with.
#[test]
fn socket_that_had_another_controller_counts_one_round_per_round_trip() {
    let mut socket = Socket::with(60, 1000);
    socket.call(Call::Init, 0);
    for rounds in 1..4 {
        socket.round();
        let counted = socket.tcp.core_rounds;
        assert!((rounds - 1..=rounds + 1).contains(&counted), "{counted} rounds in {rounds} round trips");
    }
    assert_eq!(socket.tcp.core_delivered, u64::from(socket.tcp.delivered) * MSS);
    assert_eq!(socket.tcp.core_mode, STARTUP, "three round trips make no plateau");
}

#[test]
fn pacing_ends_when_the_socket_is_given_away() {
    let mut socket = Socket::new();
    assert_eq!(socket.tcp.is_paced, 1);
    socket.call(Call::Release, 0);
    assert_eq!(socket.tcp.is_paced, 0);
}

/// There are kernels that now and then do not make a call
/// (docs/explanation/bbr3-on-stock-kernels.md, "Skipped BPF calls").
#[test]
fn unreported_ack_is_covered_by_the_next() {
    let mut socket = Socket::new();
    let (mut acked, mut lost, mut marked) = (0, 0, 0);
    for number in 0..3000u32 {
        socket.acknowledge();
        socket.tcp.lost += u32::from(number % 100 == 99);
        socket.tcp.delivered_ce += u32::from(number % 300 == 299);
        // Two of three are reported, but none of those with losses and marks.
        if number % 3 == 2 {
            continue;
        }
        socket.call(Call::CongControl, 0);
        acked += socket.tcp.core_newly_acked;
        lost += socket.tcp.core_newly_lost;
        marked += socket.tcp.core_ce_count;
    }
    socket.ack();
    acked += socket.tcp.core_newly_acked;
    lost += socket.tcp.core_newly_lost;
    marked += socket.tcp.core_ce_count;
    let tcp = socket.tcp;
    assert_eq!((acked, lost, marked), (3001 * MSS, 30 * MSS, 10));
    assert_eq!(
        (tcp.core_delivered, tcp.core_lost),
        (u64::from(tcp.delivered) * MSS, u64::from(tcp.lost) * MSS)
    );
    let trips = 3001 / INFLIGHT;
    assert!((trips - 4..=trips + 1).contains(&tcp.core_rounds), "{} of {trips} rounds", tcp.core_rounds);
    assert!(PROBE_BW.contains(&tcp.core_mode), "{tcp:?}");
}

#[test]
fn socket_without_init_starts_with_its_first_ack() {
    let mut socket = Socket::with(20, 500);
    socket.ack();
    assert_eq!((socket.tcp.has_flow, socket.tcp.is_paced, socket.tcp.core_mode), (1, 1, STARTUP));
    assert_eq!(socket.tcp.core_delivered, 501 * MSS);
    socket.round();
    assert!((1..=2).contains(&socket.tcp.core_rounds), "{} rounds in a round trip", socket.tcp.core_rounds);
}

#[test]
fn unreported_recovery_is_detected_by_the_next_ack() {
    let mut socket = Socket::new();
    socket.run_to(|mode| PROBE_BW.contains(&mode));
    let before = socket.tcp.snd_cwnd;
    // The kernel enters recovery, sets its threshold and leaves the window alone; no call comes
    // through.
    socket.tcp.ca_state = RECOVERY;
    socket.tcp.lost += 1;
    socket.ack();
    assert_eq!((socket.tcp.core_recovery, socket.tcp.core_undo_saved), (1, 1));
    assert!(socket.tcp.core_prior_cwnd >= u64::from(before) * MSS, "{before} packets: {:?}", socket.tcp);
    socket.tcp.ca_state = OPEN;
    socket.ack();
    assert_eq!((socket.tcp.core_recovery, socket.tcp.core_undo_saved), (0, 0), "and so is its end");
}

/// An undefined answer to `ssthresh` or `undo_cwnd` ends in the socket.
#[test]
fn window_or_threshold_without_a_writer_is_rejected() {
    // Startup has no bound of its own, and ProbeBW has.
    for is_there in [(|mode| mode == STARTUP) as fn(u32) -> bool, |mode| PROBE_BW.contains(&mode)] {
        let mut socket = Socket::new();
        socket.round();
        socket.run_to(is_there);
        let before = socket.tcp.snd_cwnd;
        (socket.tcp.snd_cwnd, socket.tcp.snd_ssthresh) = (1_000_000, 7);
        socket.ack();
        let (window, threshold) = (socket.tcp.snd_cwnd, socket.tcp.snd_ssthresh);
        assert!(window <= before + 1, "{window} packets after {before}: {:?}", socket.tcp);
        assert_eq!(threshold, INFINITE);
    }
}

/// `ssthresh` is called for CWR, too, which is left without a word: what it saved would be restored
/// by a later recovery.
#[test]
fn a_mark_saves_nothing_and_a_recovery_does() {
    let mut socket = Socket::new();
    socket.run_to(|mode| PROBE_BW.contains(&mode));
    assert_eq!(socket.call(Call::Ssthresh, 0), INFINITE);
    socket.enter(CWR);
    socket.round();
    assert_eq!(socket.tcp.core_undo_saved, 0);
    socket.enter(OPEN);
    socket.ack();
    assert_eq!(socket.call(Call::Ssthresh, 0), INFINITE);
    socket.enter(RECOVERY);
    assert_eq!(socket.tcp.core_undo_saved, 1);
    // What the recovery has saved is given back when it was spurious.
    let window = socket.tcp.snd_cwnd;
    socket.tcp.snd_cwnd = 4;
    assert!(socket.call(Call::UndoCwnd, 0) >= window, "{:?}", socket.tcp);
    assert_eq!(socket.tcp.core_undo_saved, 0);
}

#[test]
fn the_window_before_a_time_out_is_the_one_that_was_last_written() {
    let mut socket = Socket::new();
    socket.run_to(|mode| PROBE_BW.contains(&mode));
    let before = socket.tcp.snd_cwnd;
    // tcp_enter_loss() cuts the window before it tells of the state.
    socket.tcp.snd_cwnd = 1;
    socket.enter(LOSS);
    assert_eq!(socket.tcp.core_prior_cwnd, u64::from(before) * MSS);
}

/// A timeout that only the next ACK reveals, when the kernel has cut the window already.
#[test]
fn unreported_timeout_keeps_the_window_before_it() {
    for variant in [DRAFT, LINUX] {
        let mut socket = Socket::with(10, 1);
        socket.tcp.variant = variant;
        socket.call(Call::Init, 0);
        socket.ack();
        // An earlier episode leaves a saved window, which says nothing about this one.
        socket.enter(RECOVERY);
        socket.enter(OPEN);
        socket.run_to(|mode| mode == CRUISE);
        let before = socket.tcp.snd_cwnd;
        let stale = socket.tcp.core_prior_cwnd;
        assert_ne!(stale, u64::from(before) * MSS);
        socket.tcp.snd_cwnd = 1;
        socket.tcp.ca_state = LOSS;
        socket.ack();
        assert!(socket.tcp.snd_cwnd < before / 2, "{before} packets: {:?}", socket.tcp);
        assert_eq!(socket.tcp.core_prior_cwnd, u64::from(before) * MSS);
        let bound = if variant == LINUX { u64::from(before) * MSS } else { u64::MAX };
        assert_eq!(socket.tcp.core_inflight_shortterm, bound);
        socket.tcp.ca_state = OPEN;
        socket.ack();
        assert!(socket.tcp.snd_cwnd > before / 2, "{before} packets: {:?}", socket.tcp);
    }
}

/// `tcp_process_tlp_ack()` enters CWR and leaves it in one ACK; a mark keeps a connection there for
/// a round trip.
#[test]
fn cwr_that_begins_and_ends_in_one_ack_is_a_loss_that_a_probe_repaired() {
    for (acks, is_loss) in [(0, true), (1, false)] {
        let mut socket = Socket::new();
        socket.run_to(|mode| PROBE_BW.contains(&mode));
        assert_eq!(socket.tcp.core_is_loss_in_round, 0);
        socket.enter(CWR);
        (0..acks).for_each(|_| socket.ack());
        socket.enter(OPEN);
        assert_eq!(socket.tcp.core_is_loss_in_round != 0, is_loss, "{acks} ACKs in CWR");
    }
}

#[test]
fn marks_are_the_connections_own_count_and_congestion_by_default() {
    let mut socket = Socket::new();
    socket.run_to(|mode| PROBE_BW.contains(&mode));
    socket.tcp.delivered_ce += 3;
    socket.ack();
    assert_eq!((socket.tcp.core_ce_count, socket.tcp.core_is_loss_in_round), (3, 1));
    socket.ack();
    assert_eq!(socket.tcp.core_ce_count, 0);
}

#[test]
fn core_receives_selective_acks_and_the_routes_initial_window() {
    let mut socket = Socket::new();
    assert_eq!((socket.tcp.core_has_selective_acks, socket.tcp.core_initial_cwnd), (1, 10 * MSS));
    socket.tcp.sack_ok = 0;
    socket.ack();
    assert_eq!(socket.tcp.core_has_selective_acks, 0);
    drop(socket);
    // (window, delivered) when the controller comes, and InitialCwnd in packets: of a connection that
    // has sent it is ten.
    for (window, delivered, initial) in [(40, 0, 40), (40, 1, 40), (40, 2, 10), (3, 900, 10)] {
        let mut socket = Socket::with(window, delivered);
        socket.call(Call::Init, 0);
        assert_eq!(socket.tcp.core_initial_cwnd, initial * MSS, "{window} packets, {delivered} delivered");
    }
}

/// `MarkConnectionAppLimited()`, also on the ACK that leaves ProbeRTT.
#[test]
fn each_ack_that_is_handled_in_probe_rtt_marks_the_connection_application_limited() {
    let mut socket = Socket::new();
    socket.run_to(|mode| PROBE_BW.contains(&mode));
    socket.tcp.rtt_us += 5_000;
    socket.run_to(|mode| mode == PROBE_RTT);
    socket.tcp.packets_out = 20;
    let mut marked = 0;
    while socket.tcp.core_mode == PROBE_RTT {
        socket.tcp.app_limited = 0;
        socket.ack();
        assert_eq!(socket.tcp.app_limited, socket.tcp.delivered + 20);
        marked += 1;
        assert!(marked < 2000, "ProbeRTT ends");
    }
    socket.tcp.app_limited = 0;
    socket.ack();
    assert_eq!(socket.tcp.app_limited, 0);
}

/// An ACK that acknowledges nothing new.
#[test]
fn an_ack_without_a_sample_bounds_the_window_that_leaving_recovery_restored() {
    let mut socket = Socket::new();
    socket.run_to(|mode| mode == 3);
    socket.enter(RECOVERY);
    let (before, bound) = socket.lose_for_two_rounds();
    socket.enter(OPEN);
    assert!(socket.tcp.snd_cwnd >= before, "restored: {} of {before}", socket.tcp.snd_cwnd);
    let tcp = &mut socket.tcp;
    (tcp.sample_delivered, tcp.acked_sacked, tcp.interval_us, tcp.rtt_us) = (-1, 0, 0, -1);
    socket.call(Call::CongControl, 0);
    assert!(socket.tcp.snd_cwnd <= bound, "and bounded again: {} of {bound}", socket.tcp.snd_cwnd);
}

#[test]
fn next_departure_and_delayed_acks_reach_the_core() {
    let mut socket = Socket::new();
    for delayed in [1, 0] {
        socket.tcp.is_ack_delayed = delayed;
        socket.tcp.wstamp_ns = socket.tcp.now + 7_000_000;
        socket.ack();
        let tcp = socket.tcp;
        assert_eq!((tcp.core_next_departure, tcp.core_is_ack_delayed), (tcp.wstamp_ns, delayed));
    }
}

#[test]
fn linux_counts_marks_and_does_not_answer_them() {
    for (variant, answers) in [(DRAFT, 1), (LINUX, 0)] {
        let mut socket = Socket::cruising(variant);
        socket.tcp.delivered_ce += 1;
        socket.ack();
        assert_eq!((socket.tcp.core_ce_count, socket.tcp.core_is_loss_in_round), (1, answers));
    }
}

#[test]
fn linux_restores_the_window_after_a_timeout_only() {
    for (variant, is_restored) in [(DRAFT, true), (LINUX, false)] {
        let mut socket = Socket::cruising(variant);
        socket.enter(RECOVERY);
        let (before, bound) = socket.lose_for_two_rounds();
        socket.enter(OPEN);
        assert_eq!(socket.tcp.snd_cwnd >= before, is_restored, "{bound}, {:?}", socket.tcp);
        assert!(is_restored || socket.tcp.snd_cwnd == bound);
    }
}

/// A timeout, then repair: reported, found by the next ACK, and by way of fast recovery.
#[test]
fn linux_restores_the_window_before_a_timeout_however_it_ends() {
    for end in [
        (|socket| socket.enter(OPEN)) as fn(&mut Socket),
        |socket| {
            socket.tcp.ca_state = OPEN;
            socket.ack();
        },
        |socket| {
            socket.enter(RECOVERY);
            socket.ack();
        },
    ] {
        let mut socket = Socket::cruising(LINUX);
        let before = socket.tcp.snd_cwnd;
        // tcp_enter_loss() cuts the window before it reports the state.
        socket.tcp.snd_cwnd = 1;
        socket.enter(LOSS);
        assert_eq!(socket.tcp.core_inflight_shortterm, u64::from(before) * MSS);
        socket.ack();
        assert!(socket.tcp.snd_cwnd < before / 2, "{before} packets: {:?}", socket.tcp);
        end(&mut socket);
        assert!(socket.tcp.snd_cwnd > before / 2, "{before} packets: {:?}", socket.tcp);
    }
}

#[test]
fn draft_sets_no_bound_at_a_timeout() {
    let mut socket = Socket::cruising(DRAFT);
    socket.tcp.snd_cwnd = 1;
    socket.enter(LOSS);
    assert_eq!(socket.tcp.core_inflight_shortterm, u64::MAX);
}

const SACKED: u32 = 1;
const RETRANSMITTED: u32 = 2;
const MARKED: u32 = 4;

/// A connection of some round trips, and what lay between its ACKs: a packet each, sent with ever
/// other numbers in flight.
struct Sent {
    socket: Socket,
    /// The packets that are outstanding, in order, and what was in flight with each, itself
    /// included.
    queue: Vec<Segment>,
    tx_in_flight: Vec<u64>,
}

impl Sent {
    fn some() -> Sent {
        let mut socket = Socket::new();
        let (mut queue, mut tx_in_flight) = (Vec::new(), Vec::new());
        for number in 0..3 * INFLIGHT {
            socket.tcp.packets_out = INFLIGHT + number % 7;
            socket.ack();
            let tcp = socket.tcp;
            queue.push(Segment {
                seq: tcp.snd_nxt,
                end_seq: tcp.snd_nxt + MSS as u32,
                sacked: 0,
                delivered: tcp.delivered,
                app_limited: number % 2,
            });
            tx_in_flight.push(u64::from(tcp.packets_out + 1) * MSS);
        }
        let gone = queue.len() - INFLIGHT as usize;
        Sent { socket, queue: queue.split_off(gone), tx_in_flight: tx_in_flight.split_off(gone) }
    }

    /// An ACK marks so many packets lost; gives the calls of `HandleLostPacket()`.
    fn lose(&mut self, packets: u32, hint: u32) -> Vec<Lost> {
        // SAFETY: the segments are there for the call, which copies them.
        unsafe { fp_hosted_queue(self.queue.as_ptr(), self.queue.len() as u32, hint) }
        self.socket.tcp.lost += packets;
        self.socket.ack();
        let mut reported = Vec::new();
        let mut lost = Lost::default();
        // SAFETY: `lost` is ours.
        while unsafe { fp_hosted_told(reported.len() as u32, &raw mut lost) } != 0 {
            reported.push(lost);
        }
        reported
    }

    /// The packet at this place is acknowledged, before those that were sent before it; gives what
    /// it is reported to the core: what was in flight with it, and lost since.
    fn ack(&mut self, at: usize) -> (u64, u64) {
        let packet = self.queue[at];
        self.socket.acknowledge();
        let tcp = &mut self.socket.tcp;
        (tcp.end_seq, tcp.prior_delivered) = (packet.end_seq, packet.delivered);
        self.socket.call(Call::CongControl, 0);
        (self.socket.tcp.core_tx_in_flight, self.socket.tcp.core_lost_since)
    }

    fn mark(&mut self, flags: u32, packets: &[usize]) {
        for &at in packets {
            self.queue[at].sacked = flags;
        }
        let count = |flag: u32| self.queue.iter().filter(|s| s.sacked & flag != 0).count() as u32;
        (self.socket.tcp.lost_out, self.socket.tcp.retrans_out) = (count(MARKED), count(RETRANSMITTED));
    }

    /// The packet at this place, as the `lost`th that was lost since it was sent.
    fn lost(&self, at: usize, lost: u64) -> Lost {
        Lost {
            bytes: MSS,
            tx_in_flight: self.tx_in_flight[at],
            lost: lost * MSS,
            app_limited: self.queue[at].app_limited.into(),
        }
    }
}

const NO_HINT: u32 = u32::MAX;

/// The draft's HandleLostPacket() is called for each packet, with what was in flight when it was
/// sent.
#[test]
fn each_lost_packet_is_reported_with_inflight_at_its_sending() {
    for hint in [NO_HINT, 0, 9] {
        let mut sent = Sent::some();
        sent.mark(MARKED, &[9, 10, 17]);
        sent.mark(MARKED | RETRANSMITTED, &[11]);
        sent.mark(SACKED, &[12, 13, 18, 19]);
        let reported = sent.lose(3, hint);
        assert_eq!(
            reported,
            [sent.lost(9, 1), sent.lost(10, 2), sent.lost(17, 3)],
            "retransmitted from {hint}"
        );
        assert_eq!(sent.socket.tcp.core_lost_ranges, 2);
    }
}

/// A path that reorders: others that were sent later have been acknowledged, and their losses
/// counted.
#[test]
fn late_packet_is_reported_with_inflight_at_its_sending() {
    let mut sent = Sent::some();
    assert_eq!(sent.ack(30), (sent.tx_in_flight[30], 0));
    sent.socket.tcp.lost += 2;
    for at in [3, 31, 5, 4, 32] {
        assert_eq!(sent.ack(at), (sent.tx_in_flight[at], 2 * MSS), "packet {at}");
    }
}

#[test]
fn packets_marked_before_are_not_reported_again() {
    let mut sent = Sent::some();
    sent.mark(MARKED, &[4]);
    assert_eq!(sent.lose(1, NO_HINT), [sent.lost(4, 1)]);
    sent.mark(MARKED, &[4, 20, 30]);
    assert_eq!(sent.lose(2, 4), [sent.lost(20, 2), sent.lost(30, 3)]);
    assert_eq!(sent.socket.tcp.core_lost_ranges, 2);
}

#[test]
fn segment_of_several_packets_is_reported_at_once_by_its_last() {
    let mut sent = Sent::some();
    sent.queue[20].end_seq += 2 * MSS as u32;
    sent.queue.drain(21..23);
    sent.mark(MARKED, &[20]);
    let reported = sent.lose(3, NO_HINT);
    // What ends it was sent in the burst that the count of delivered packets and its end lead to.
    assert_eq!(reported.len(), 1);
    assert_eq!((reported[0].bytes, reported[0].lost), (3 * MSS, 3 * MSS));
    assert_eq!(sent.socket.tcp.core_lost_ranges, 1);
}

/// Packets that a timer marked have left again before the next ACK tells of them.
#[test]
fn missing_program_is_reported_at_once() {
    let mut sent = Sent::some();
    sent.mark(MARKED, &[15]);
    let reported = sent.lose(5, NO_HINT);
    assert_eq!(
        (reported.len(), reported[0], reported[1].bytes, reported[1].lost),
        (2, sent.lost(15, 1), 4 * MSS, 5 * MSS)
    );
    drop(sent);

    let mut sent = Sent::some();
    let reported = sent.lose(2, NO_HINT);
    assert_eq!((reported.len(), reported[0].bytes, sent.socket.tcp.core_lost_ranges), (1, 2 * MSS, 1));
}

/// A timer's losses have left again, and a packet that was sent after them is lost with the next
/// ACK.
#[test]
fn a_loss_after_a_timers_counts_itself_alone() {
    let mut sent = Sent::some();
    sent.socket.tcp.lost += 5;
    sent.socket.enter(RECOVERY);
    sent.mark(MARKED, &[INFLIGHT as usize - 1]);
    let reported = sent.lose(1, NO_HINT);
    assert_eq!(
        (reported.len(), reported[0].bytes, reported[0].lost),
        (2, MSS, MSS),
        "itself alone: {reported:?}"
    );
    assert_eq!(reported[1].bytes, 5 * MSS);
    assert!(reported[1].lost <= 6 * MSS, "{reported:?}");
}

#[test]
fn first_of_very_many_are_reported_one_by_one() {
    let mut sent = Sent::some();
    let every_second: Vec<usize> = (0..40).step_by(2).collect();
    sent.mark(MARKED, &every_second);
    let reported = sent.lose(20, NO_HINT);
    assert_eq!(reported.len(), 17);
    for (i, lost) in reported[..16].iter().enumerate() {
        assert_eq!(*lost, sent.lost(2 * i, i as u64 + 1));
    }
    assert_eq!((reported[16].bytes, reported[16].lost), (4 * MSS, 20 * MSS));
}
