//! Constants and structs of the interface.

use ::fullpipe_cc::{AckReport, Config, RateSample, Span, Stamp, Time};
use core::ffi::c_char;

/// Version of this header, 0x00MMmmpp: compare with fullpipe_cc_version().
pub const FULLPIPE_CC_VERSION: u32 = 0x00_00_01_00;

/// Bytes of a fullpipe_cc. The library may use fewer: fullpipe_cc_size().
pub const FULLPIPE_CC_SIZE: usize = 1024;

/// Bytes of a fullpipe_cc_spec.
pub const FULLPIPE_CC_SPEC_SIZE: usize = 256;

/// Bytes of a fullpipe_cc_stamp.
pub const FULLPIPE_CC_STAMP_SIZE: usize = 64;

/// "Not available", "unlimited" or "never", in 64-bit results.
pub const FULLPIPE_CC_NONE: u64 = u64::MAX;

/// In place of the length of a text: it ends at its first NUL. (cbindgen.toml has its C form.)
pub const FULLPIPE_CC_TO_NUL: usize = usize::MAX;

/// Result of a call.
#[repr(i32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum fullpipe_cc_status {
    /// Done.
    FULLPIPE_CC_OK = 0,
    /// A pointer is null.
    FULLPIPE_CC_ERR_NULL = -1,
    /// Memory for an object is not aligned as its type requires.
    FULLPIPE_CC_ERR_ALIGN = -2,
    /// Memory is too small, or a text is longer than memory can be.
    FULLPIPE_CC_ERR_SIZE = -3,
    /// An object is not initialised.
    FULLPIPE_CC_ERR_STATE = -4,
    /// Wrong order: the event is not open (closed already, of another controller, or of the other
    /// kind), or an event is open that must be closed first.
    FULLPIPE_CC_ERR_EVENT = -5,
    /// The text names no valid controller and settings.
    FULLPIPE_CC_ERR_SPEC = -6,
    /// A value is out of the documented range.
    FULLPIPE_CC_ERR_VALUE = -7,
}

/// Loss-recovery state of a connection.
#[repr(i32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum fullpipe_cc_recovery {
    /// No loss outstanding.
    FULLPIPE_CC_OPEN = 0,
    /// Fast recovery.
    FULLPIPE_CC_RECOVERY = 1,
    /// After a retransmission timeout or persistent congestion.
    FULLPIPE_CC_LOSS = 2,
}

/// Congestion control of one connection, in the caller's memory.
#[repr(C)]
pub struct fullpipe_cc {
    /// The library's.
    pub storage: [u64; 128],
}

/// A controller and its settings, checked: one serves any number of connections.
#[repr(C)]
pub struct fullpipe_cc_spec {
    /// The library's.
    pub storage: [u64; 32],
}

/// Parameters of a new connection or path. Zero is the default of each, so that
/// `struct fullpipe_cc_config config = {0};` is valid.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct fullpipe_cc_config {
    /// Initial congestion window in bytes. 0: ten packets.
    pub initial_cwnd: u64,
    /// Seed of the controller's random numbers, which spread the probes of BBR flows that share a
    /// bottleneck: a number that differs from connection to connection. The library has no source of
    /// randomness. 0: 1.
    pub seed: u64,
    /// Bytes of a full packet. 0: 1448.
    pub smss: u32,
    /// Not 0: the peer does not acknowledge selectively.
    pub no_selective_acks: u8,
    /// Not 0: a controller without a pacing rate (cubic, reno, hybla) is paced at a rate derived from
    /// its window, as Linux does under fq.
    pub paced_by_window: u8,
    /// 0.
    pub reserved: [u8; 2],
}

impl fullpipe_cc_config {
    pub(crate) fn checked(&self) -> Result<Config, fullpipe_cc_status> {
        if self.reserved != [0; 2] {
            return Err(fullpipe_cc_status::FULLPIPE_CC_ERR_VALUE);
        }
        let default = Config::default();
        let or = |value: u64, default: u64| if value == 0 { default } else { value };
        let smss = if self.smss == 0 { default.smss } else { self.smss };
        Ok(Config {
            smss,
            initial_cwnd: or(self.initial_cwnd, 10 * u64::from(smss)),
            seed: or(self.seed, default.seed),
            selective_acks: self.no_selective_acks == 0,
            paced: self.paced_by_window != 0,
        })
    }
}

/// State of the connection when a packet was sent. The transport keeps it with the packet, and
/// passes it when the packet is acknowledged or lost. It may be copied.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct fullpipe_cc_stamp {
    /// When the packet was sent.
    pub sent_at: u64,
    /// Bytes delivered by then.
    pub delivered: u64,
    /// When `delivered` last increased.
    pub delivered_at: u64,
    /// Send time of the packet most recently delivered by then.
    pub first_sent_at: u64,
    /// Bytes lost by then.
    pub lost: u64,
    /// Bytes in flight, this packet included.
    pub tx_in_flight: u64,
    /// Number of the transmission: 1 for a connection's first packet.
    pub id: u64,
    /// Not 0: the connection was application-limited.
    pub app_limited: u32,
    /// 0.
    pub reserved: u32,
}

impl From<Stamp> for fullpipe_cc_stamp {
    fn from(stamp: Stamp) -> Self {
        fullpipe_cc_stamp {
            sent_at: stamp.sent_at.as_nanos(),
            delivered: stamp.delivered,
            delivered_at: stamp.delivered_at.as_nanos(),
            first_sent_at: stamp.first_sent_at.as_nanos(),
            lost: stamp.lost,
            tx_in_flight: stamp.tx_in_flight,
            id: stamp.id,
            app_limited: u32::from(stamp.app_limited),
            reserved: 0,
        }
    }
}

impl From<fullpipe_cc_stamp> for Stamp {
    fn from(stamp: fullpipe_cc_stamp) -> Self {
        Stamp {
            sent_at: Time::from_nanos(stamp.sent_at),
            delivered: stamp.delivered,
            delivered_at: Time::from_nanos(stamp.delivered_at),
            first_sent_at: Time::from_nanos(stamp.first_sent_at),
            lost: stamp.lost,
            tx_in_flight: stamp.tx_in_flight,
            app_limited: stamp.app_limited != 0,
            id: stamp.id,
        }
    }
}

/// An ACK or losses that are being processed: written by fullpipe_cc_begin_ack or
/// fullpipe_cc_begin_losses, valid for that controller until it is closed, and closed once.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct fullpipe_cc_event {
    /// The library's.
    pub serial: u64,
    /// Bytes newly acknowledged in this event so far.
    pub newly_acked: u64,
    /// Bytes marked lost in this event so far.
    pub newly_lost: u64,
    /// The library's.
    pub kind: u32,
    /// 0.
    pub reserved: u32,
}

/// What a transport reports at the end of an ACK. Fields that it does not know are 0;
/// fullpipe_cc_ack_report_init sets all of them.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct fullpipe_cc_ack_report {
    /// When the ACK arrived.
    pub now: u64,
    /// Round-trip time of the newest acknowledged packet that was not retransmitted. 0 or
    /// FULLPIPE_CC_NONE: unknown, here and in the next two.
    pub rtt: u64,
    /// Smoothed round-trip time, this ACK included.
    pub srtt: u64,
    /// Minimum round-trip time, this ACK included.
    pub min_rtt: u64,
    /// Bytes in flight after the ACK: without acknowledged and lost bytes.
    pub inflight: u64,
    /// Bytes sent and not acknowledged cumulatively, lost and selectively acknowledged ones
    /// included. Used only with paced_by_window; `inflight` where losses are removed from it at once.
    pub outstanding: u64,
    /// Packets newly reported as marked Congestion Experienced.
    pub ce_count: u32,
    /// Not 0: the ACK did not advance the cumulative acknowledgement.
    pub not_advanced: u8,
    /// Not 0: the window (not the application, not the receiver) limited sending in the last round
    /// trip. See fullpipe_cc_window_limited.
    pub cwnd_limited: u8,
    /// Not 0: selective acknowledgements leave a hole of which nothing is marked lost.
    pub disorder: u8,
    /// Not 0: it acknowledges a single packet, less than full, and leaves none outstanding: the
    /// receiver may have delayed such an ACK.
    pub single_small_packet: u8,
}

impl From<fullpipe_cc_ack_report> for AckReport {
    fn from(report: fullpipe_cc_ack_report) -> Self {
        let known = |ns: u64| (ns != 0 && ns != FULLPIPE_CC_NONE).then(|| Span::from_nanos(ns));
        AckReport {
            rtt: known(report.rtt),
            srtt: known(report.srtt),
            min_rtt: known(report.min_rtt),
            outstanding: report.outstanding,
            advanced: report.not_advanced == 0,
            ce_count: report.ce_count,
            cwnd_limited: report.cwnd_limited != 0,
            disorder: report.disorder != 0,
            lone_runt: report.single_small_packet != 0,
            ..AckReport::at(Time::from_nanos(report.now), report.inflight)
        }
    }
}

/// The delivery-rate sample of an ACK.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct fullpipe_cc_rate_sample {
    /// Delivery rate; FULLPIPE_CC_NONE if the ACK gave no valid sample.
    pub rate: u64,
    /// Bytes delivered over `interval`.
    pub delivered: u64,
    /// The longer of the send and the ACK phase.
    pub interval: u64,
    /// Bytes delivered on the connection when the sample's newest packet was sent.
    pub prior_delivered: u64,
    /// Bytes in flight when that packet was sent, itself included.
    pub tx_in_flight: u64,
    /// Bytes marked lost between that packet's sending and now.
    pub lost: u64,
    /// Not 0: that packet was sent while the application had nothing more to send.
    pub app_limited: u32,
    /// Not 0: the ACK newly acknowledged a packet. Otherwise the other fields are meaningless.
    pub has_packet: u32,
}

impl From<RateSample> for fullpipe_cc_rate_sample {
    fn from(sample: RateSample) -> Self {
        fullpipe_cc_rate_sample {
            rate: sample.rate.map_or(FULLPIPE_CC_NONE, |rate| rate.as_bytes_per_sec()),
            delivered: sample.delivered,
            interval: sample.interval.as_nanos(),
            prior_delivered: sample.prior_delivered,
            tx_in_flight: sample.tx_in_flight,
            lost: sample.lost,
            app_limited: u32::from(sample.app_limited),
            has_packet: u32::from(sample.has_packet),
        }
    }
}

/// A controller's state for plots and logs. FULLPIPE_CC_NONE: the algorithm has no such value, or
/// none yet.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct fullpipe_cc_snapshot {
    /// The state of its state machine (`Startup`, `ProbeBW_UP`, `SlowStart`, …): static,
    /// NUL-terminated.
    pub state: *const c_char,
    /// The controller's congestion window; fullpipe_cc_window may be smaller in a recovery.
    pub cwnd: u64,
    /// Slow-start threshold.
    pub ssthresh: u64,
    /// The controller's pacing rate.
    pub pacing_rate: u64,
    /// The bandwidth estimate it paces by.
    pub bw: u64,
    /// The windowed maximum of the delivery rate (BBR v3 `max_bw`).
    pub max_bw: u64,
    /// Upper, short-term bound on that estimate (BBR v3 `bw_shortterm`).
    pub bw_shortterm: u64,
    /// The round-trip propagation estimate.
    pub min_rtt: u64,
    /// Pacing gain in 1/256.
    pub pacing_gain: u64,
    /// Window gain in 1/256.
    pub cwnd_gain: u64,
    /// Long-term bound on bytes in flight (BBR v3 `inflight_longterm`).
    pub inflight_longterm: u64,
    /// Short-term bound on bytes in flight (BBR v3 `inflight_shortterm`).
    pub inflight_shortterm: u64,
    /// Packet-timed round trips so far.
    pub rounds: u64,
}

/// A static text of `length` bytes, without a NUL at its end: printf("%.*s", (int)length, data).
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct fullpipe_cc_text {
    /// Its first byte; never null.
    pub data: *const c_char,
    /// Its bytes.
    pub length: usize,
}

impl From<&'static str> for fullpipe_cc_text {
    fn from(text: &'static str) -> Self {
        fullpipe_cc_text { data: text.as_ptr().cast(), length: text.len() }
    }
}

/// Description of a controller.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct fullpipe_cc_info {
    /// Its name in specs.
    pub name: fullpipe_cc_text,
    /// One-line description.
    pub about: fullpipe_cc_text,
    /// Name of the equivalent Linux controller; empty if there is none.
    pub kernel: fullpipe_cc_text,
    /// Number of its settings.
    pub settings: usize,
}

/// Description of a setting of a controller.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct fullpipe_cc_setting {
    /// Its key in specs.
    pub key: fullpipe_cc_text,
    /// Accepted values.
    pub values: fullpipe_cc_text,
    /// Its default.
    pub default_value: fullpipe_cc_text,
    /// One-line description.
    pub about: fullpipe_cc_text,
}

/// Estimator of the round-trip time of one path (RFC 9002 section 5).
#[repr(C)]
pub struct fullpipe_cc_rtt {
    /// The library's.
    pub storage: [u64; 8],
}

/// Finds where fast recovery begins and ends from packet numbers, for transports that report losses
/// but not recovery. Numbers increase with each packet sent, retransmissions included.
#[repr(C)]
pub struct fullpipe_cc_episode {
    /// The library's.
    pub storage: [u64; 8],
}

/// What an event changes, from fullpipe_cc_episode_update. Of both, the end is reported first.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct fullpipe_cc_episode_change {
    /// Not 0: recovery ends; call fullpipe_cc_exit_recovery.
    pub exit_recovery: u8,
    /// Not 0: recovery begins; call fullpipe_cc_enter_recovery, or on a timer
    /// fullpipe_cc_enter_recovery_on_timer.
    pub enter_recovery: u8,
}

/// Whether the window, not the application, limited sending within the last round trip.
#[repr(C)]
pub struct fullpipe_cc_window_limited {
    /// The library's.
    pub storage: [u64; 4],
}

const _: () = {
    assert!(size_of::<fullpipe_cc_stamp>() == FULLPIPE_CC_STAMP_SIZE);
    assert!(size_of::<fullpipe_cc_stamp>() == size_of::<Stamp>());
    assert!(size_of::<fullpipe_cc>() == FULLPIPE_CC_SIZE);
    assert!(size_of::<fullpipe_cc_spec>() == FULLPIPE_CC_SPEC_SIZE);
    assert!(size_of::<fullpipe_cc_config>() == 24);
    assert!(size_of::<fullpipe_cc_event>() == 32);
    assert!(size_of::<fullpipe_cc_ack_report>() == 56);
    assert!(size_of::<fullpipe_cc_rate_sample>() == 56);
    assert!(size_of::<fullpipe_cc_episode_change>() == 2);
    assert!(size_of::<fullpipe_cc_rtt>() == 64);
    assert!(size_of::<fullpipe_cc_episode>() == 64);
    assert!(size_of::<fullpipe_cc_window_limited>() == 32);
    assert!(align_of::<fullpipe_cc_stamp>() == align_of::<u64>());
};
