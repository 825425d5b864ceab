//! The interface between a transport and a congestion controller.

use crate::pacer::GSO_MAX_BYTES;
use crate::sampler::RateSample;
use core::any::Any;
use fullpipe_units::{Gain, Rate, Span, Time};

/// Parameters of a new connection. Build it with struct update syntax from [`Config::default`]:
/// later versions may add fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Config {
    /// Sender maximum segment size: bytes of a full packet as the window counts them, ≥ 1. For TCP
    /// the payload, for QUIC the UDP payload.
    pub smss: u32,
    /// Initial congestion window in bytes (RFC 6928, RFC 9002 §7.2: ten packets).
    pub initial_cwnd: u64,
    /// Seed of the controller's random numbers, which spread the probes of BBR flows that share a
    /// bottleneck. The crate has no source of randomness: pass a number that differs from connection
    /// to connection, for example eight bytes of the connection ID or of the operating system's
    /// generator. Under test, pass a constant.
    pub seed: u64,
    /// Whether the peer acknowledges selectively (RFC 2018; QUIC always does): without it, a
    /// transport can detect one loss per round trip.
    pub selective_acks: bool,
    /// Whether the transport paces controllers without a pacing rate
    /// ([`SendController::paced_by_window`](crate::SendController::paced_by_window)): CUBIC's HyStart then
    /// allows longer ACK trains.
    pub paced: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config { smss: 1448, initial_cwnd: 10 * 1448, seed: 1, selective_acks: true, paced: false }
    }
}

/// A packet about to be sent. Transports that call the controller directly build it with struct
/// update syntax from [`Sent::at`], hence without `#[non_exhaustive]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    /// Departure time (paced).
    pub now: Time,
    /// Its size in bytes.
    pub bytes: u64,
    /// Bytes in flight before it.
    pub inflight: u64,
    /// Whether the sampler's application-limited mark is set: with nothing in flight, the
    /// connection restarts from idle.
    pub app_limited: bool,
    /// Bytes delivered so far on this connection.
    pub delivered: u64,
    /// Whether it is a retransmission.
    pub retransmit: bool,
}

impl Sent {
    /// A packet sent at `now` without information, to be completed with struct update syntax.
    pub fn at(now: Time) -> Self {
        Sent { now, bytes: 0, inflight: 0, app_limited: false, delivered: 0, retransmit: false }
    }
}

/// A processed acknowledgement: all packets it acknowledges or reveals as lost have gone through
/// the [`Sampler`](crate::Sampler). Passed once per ACK. Transports that call the controller
/// directly build it with struct update syntax from [`Ack::at`], hence without `#[non_exhaustive]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ack {
    /// When it arrived.
    pub now: Time,
    /// The delivery-rate sample it completes.
    pub sample: RateSample,
    /// Round-trip time of the newest acknowledged packet that was not retransmitted.
    pub rtt: Option<Span>,
    /// Smoothed round-trip time (RFC 6298), this ACK included.
    pub srtt: Option<Span>,
    /// Bytes newly acknowledged, cumulatively or selectively.
    pub newly_acked: u64,
    /// Bytes newly marked lost.
    pub newly_lost: u64,
    /// Contiguous sequence ranges marked lost since the previous ACK: by this one, or by a timer
    /// before it.
    pub lost_ranges: u32,
    /// Bytes in flight before this ACK.
    pub inflight_before: u64,
    /// Bytes in flight after it: without acknowledged and lost bytes.
    pub inflight: u64,
    /// Bytes delivered so far on this connection, this ACK included.
    pub delivered: u64,
    /// Bytes marked lost so far on this connection, this ACK included.
    pub lost: u64,
    /// Whether the window (not the application, not the receiver) limited sending in the round
    /// trip before this ACK (RFC 7661, Linux `tcp_is_cwnd_limited`).
    pub cwnd_limited: bool,
    /// Packets newly reported as marked Congestion Experienced.
    pub ce_count: u32,
    /// Whether the receiver may have delayed this ACK (a single small packet).
    pub delayed: bool,
    /// Loss-recovery state after this ACK.
    pub recovery: RecoveryState,
    /// The earliest departure time of the next packet; at most `now` if immediately.
    pub next_departure: Time,
}

impl Ack {
    /// An ACK at `now` without information, to be completed with struct update syntax.
    pub fn at(now: Time) -> Self {
        Ack {
            now,
            sample: RateSample::default(),
            rtt: None,
            srtt: None,
            newly_acked: 0,
            newly_lost: 0,
            lost_ranges: 0,
            inflight_before: 0,
            inflight: 0,
            delivered: 0,
            lost: 0,
            cwnd_limited: false,
            ce_count: 0,
            delayed: false,
            recovery: RecoveryState::Open,
            next_departure: now,
        }
    }
}

/// A packet marked lost. Passed once per packet, before the [`Ack`] that revealed the loss.
/// Transports that call the controller directly build it with struct update syntax from
/// [`Lost::at`], hence without `#[non_exhaustive]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lost {
    /// When it was marked.
    pub now: Time,
    /// Its size in bytes.
    pub bytes: u64,
    /// Bytes in flight when it was sent, itself included.
    pub tx_in_flight: u64,
    /// Bytes delivered on the connection when it was sent.
    pub delivered_at_send: u64,
    /// Bytes lost on the connection when it was sent.
    pub lost_at_send: u64,
    /// Bytes lost on the connection so far, this packet included.
    pub lost: u64,
    /// Bytes delivered on the connection so far, including the ACK that revealed the loss.
    pub delivered: u64,
    /// Whether the connection was application-limited when it was sent.
    pub app_limited: bool,
}

impl Lost {
    /// A packet marked lost at `now` without information, to be completed with struct update syntax.
    pub fn at(now: Time) -> Self {
        Lost {
            now,
            bytes: 0,
            tx_in_flight: 0,
            delivered_at_send: 0,
            lost_at_send: 0,
            lost: 0,
            delivered: 0,
            app_limited: false,
        }
    }
}

/// The sender's loss-recovery state (Linux's `tcp_ca_state`, with CWR as part of `Open`). Complete:
/// transports match on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RecoveryState {
    /// No loss outstanding.
    #[default]
    Open,
    /// Duplicate or selective ACKs seen, nothing marked lost yet.
    Disorder,
    /// Fast recovery (RFC 6675, RFC 8985).
    Recovery,
    /// After a retransmission timeout.
    Loss,
}

/// A change of the sender's loss-recovery state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Recovery {
    /// Fast recovery begins: the first loss after a time without.
    EnterFast,
    /// The retransmission timer fired: everything outstanding is presumed lost. For QUIC, persistent
    /// congestion (RFC 9002 §7.6); a probe timeout is not a loss.
    EnterRto,
    /// Everything outstanding when recovery started has been acknowledged. A transport that exits
    /// recovery earlier (RFC 9002 §7.3.2: at the first packet sent since) restarts it with every
    /// loss; BBR v1 conserves packets in the first round of each recovery and then runs below
    /// its rate from a few percent of loss on. [`RecoveryEpisode`](crate::RecoveryEpisode) finds the
    /// end by packet number.
    Exit,
    /// The losses were spurious (DSACK, F-RTO, timestamps): undo their effects.
    Spurious,
}

/// The connection at the moment of a [`Recovery`] event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecoveryContext {
    /// When it happened.
    pub now: Time,
    /// Bytes in flight: for [`Recovery::EnterFast`] including the lost packets, for
    /// [`Recovery::EnterRto`] after everything outstanding is presumed lost.
    pub inflight: u64,
    /// Bytes delivered so far on this connection.
    pub delivered: u64,
    /// Bytes marked lost so far on this connection.
    pub lost: u64,
}

/// A controller's state for plots, tables and logs. Values that an algorithm does not have are
/// `None`. Controllers build it with struct update syntax from [`Snapshot::default`], which
/// `#[non_exhaustive]` forbids.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Snapshot {
    /// The state of its state machine (`Startup`, `ProbeBW_UP`, `SlowStart`, …).
    pub state: &'static str,
    /// Congestion window in bytes.
    pub cwnd: u64,
    /// Slow-start threshold in bytes, if set.
    pub ssthresh: Option<u64>,
    /// Pacing rate.
    pub pacing_rate: Option<Rate>,
    /// The bandwidth estimate it paces by.
    pub bw: Option<Rate>,
    /// The windowed maximum of the delivery rate (BBR v3 `max_bw`), which [`bw`](Self::bw) is at
    /// most.
    pub max_bw: Option<Rate>,
    /// Upper, short-term bound on that estimate (BBR v3 `bw_shortterm`).
    pub bw_shortterm: Option<Rate>,
    /// The round-trip propagation estimate.
    pub min_rtt: Option<Span>,
    /// Current pacing gain.
    pub pacing_gain: Option<Gain>,
    /// Current window gain.
    pub cwnd_gain: Option<Gain>,
    /// Long-term bound on inflight in bytes (BBR v3 `inflight_longterm`).
    pub inflight_longterm: Option<u64>,
    /// Short-term bound on inflight in bytes (BBR v3 `inflight_shortterm`).
    pub inflight_shortterm: Option<u64>,
    /// Packet-timed round trips so far.
    pub rounds: Option<u64>,
}

/// A congestion controller. The transport owns packets, clocks and loss detection; it calls one
/// method per event and applies [`cwnd`](Self::cwnd), [`pacing_rate`](Self::pacing_rate) and
/// [`send_quantum`](Self::send_quantum). [`SendController`](crate::SendController) makes the calls in the
/// right order. Object-safe; never allocates; cannot fail.
pub trait CongestionControl: Send {
    /// The handshake measured a first round-trip time. Called at most once, before the first
    /// packet; QUIC never calls it.
    fn on_handshake(&mut self, _now: Time, _rtt: Span) {}

    /// A packet is about to be sent.
    fn on_send(&mut self, _sent: &Sent) {}

    /// A packet has just been marked lost (before the ACK or time-out event that showed it).
    fn on_lost(&mut self, _lost: &Lost) {}

    /// An ACK has been processed.
    fn on_ack(&mut self, ack: &Ack);

    /// The loss-recovery state changes. Order on an ACK that starts or ends recovery:
    /// `on_lost`…, `on_recovery`, `on_ack`.
    fn on_recovery(&mut self, event: Recovery, context: &RecoveryContext);

    /// The maximum segment size changed to `smss` bytes. A window in bytes stays what it
    /// is.
    fn on_mtu(&mut self, _smss: u32) {}

    /// Congestion window in bytes.
    fn cwnd(&self) -> u64;

    /// Slow-start threshold in bytes; `u64::MAX` if not set.
    fn ssthresh(&self) -> u64;

    /// The pacing rate; `None` if the algorithm does not pace (the transport may still, as Linux
    /// does with `tcp_pacing_ss_ratio`).
    fn pacing_rate(&self) -> Option<Rate> {
        None
    }

    /// Maximum burst in bytes; by default the device limit.
    fn send_quantum(&self) -> u64 {
        GSO_MAX_BYTES
    }

    /// Whether the sender reduces the window during fast recovery by Proportional Rate Reduction
    /// (RFC 6937) to [`ssthresh`](Self::ssthresh). BBR sets its own window.
    fn uses_prr(&self) -> bool {
        true
    }

    /// Whether packets may be sent as ECN-capable. A controller that does not respond to Congestion
    /// Experienced marks must not claim ECN (RFC 3168 §5, draft-ietf-ccwg-bbr § ECN), so the
    /// default is false. BBR v1 claims it and ignores marks, as in Linux.
    fn claims_ecn(&self) -> bool {
        false
    }

    /// Whether it is reducing the window for an ECN mark (Linux's CWR state): the sender then also
    /// uses Proportional Rate Reduction until this returns false.
    fn in_cwr(&self) -> bool {
        false
    }

    /// Whether the transport shall call
    /// [`Sampler::mark_app_limited`](crate::Sampler::mark_app_limited) with its bytes in
    /// flight, asked after each [`on_ack`](Self::on_ack): BBR in ProbeRTT keeps the
    /// window small on purpose, and rates measured then say nothing about the path.
    fn marks_app_limited(&self) -> bool {
        false
    }

    /// The state for plots and tables.
    fn snapshot(&self) -> Snapshot;

    /// [`Snapshot::state`] alone, cheap enough to query after every ACK.
    fn state(&self) -> &'static str {
        self.snapshot().state
    }

    /// The controller itself, for external control between two calls of the transport; `None` for
    /// controllers without external control.
    fn as_any(&mut self) -> Option<&mut dyn Any> {
        None
    }
}

/// Implements [`CongestionControl`](crate::CongestionControl) for a type that contains a
/// controller, by forwarding *every* method: a wrapper that leaves one out silently gets its
/// default.
///
/// After the type follow the arms of a `match self`, each with the place of a controller. This is
/// how the crate implements the trait for references, for `Box` (feature `alloc`) and for
/// [`Controller`](crate::Controller).
///
/// ```
/// use fullpipe_cc::{Controller, CongestionControl, forward_congestion_control};
///
/// enum Either<C> {
///     Known(Controller),
///     Own(C),
/// }
///
/// forward_congestion_control! {
///     impl[C: CongestionControl] for Either<C> {
///         Either::Known(c) => *c,
///         Either::Own(c) => *c,
///     }
/// }
/// ```
#[macro_export]
macro_rules! forward_congestion_control {
    ($(#[$attribute:meta])* impl[$($generics:tt)*] for $type:ty { $($arms:tt)+ }) => {
        $crate::forward_congestion_control! {
            @impl [inline] $(#[$attribute])* impl[$($generics)*] for $type { $($arms)+ }
        }
    };
    // As functions of their own: for controllers that are dispatched to beside faster ones.
    ($(#[$attribute:meta])* outlined impl[$($generics:tt)*] for $type:ty { $($arms:tt)+ }) => {
        $crate::forward_congestion_control! {
            @impl [inline(never)] $(#[$attribute])* impl[$($generics)*] for $type { $($arms)+ }
        }
    };
    (@impl $inline:tt $(#[$attribute:meta])* impl[$($generics:tt)*] for $type:ty { $($arms:tt)+ }) => {
        $(#[$attribute])*
        #[deny(clippy::missing_trait_methods)]
        impl<$($generics)*> $crate::CongestionControl for $type {
            $crate::forward_congestion_control! {
                @methods $inline { $($arms)+ }
                fn on_handshake(&mut self, now: $crate::Time, rtt: $crate::Span);
                fn on_send(&mut self, sent: &$crate::Sent);
                fn on_lost(&mut self, lost: &$crate::Lost);
                fn on_ack(&mut self, ack: &$crate::Ack);
                fn on_recovery(&mut self, event: $crate::Recovery, context: &$crate::RecoveryContext);
                fn on_mtu(&mut self, smss: u32);
                fn cwnd(&self) -> u64;
                fn ssthresh(&self) -> u64;
                fn pacing_rate(&self) -> Option<$crate::Rate>;
                fn send_quantum(&self) -> u64;
                fn uses_prr(&self) -> bool;
                fn claims_ecn(&self) -> bool;
                fn in_cwr(&self) -> bool;
                fn marks_app_limited(&self) -> bool;
                fn snapshot(&self) -> $crate::Snapshot;
                fn state(&self) -> &'static str;
                fn as_any(&mut self) -> Option<&mut dyn ::core::any::Any>;
            }
        }
    };
    (@methods $inline:tt $arms:tt) => {};
    (@methods [$($inline:tt)+] $arms:tt
        fn $name:ident(&mut self $(, $argument:ident: $of:ty)*) $(-> $out:ty)?; $($rest:tt)*
    ) => {
        #[$($inline)+]
        fn $name(&mut self $(, $argument: $of)*) $(-> $out)? {
            $crate::forward_congestion_control!(@match self, $arms, mut, $name($($argument),*))
        }
        $crate::forward_congestion_control!(@methods [$($inline)+] $arms $($rest)*);
    };
    (@methods [$($inline:tt)+] $arms:tt fn $name:ident(&self) -> $out:ty; $($rest:tt)*) => {
        #[$($inline)+]
        fn $name(&self) -> $out {
            $crate::forward_congestion_control!(@match self, $arms, const, $name())
        }
        $crate::forward_congestion_control!(@methods [$($inline)+] $arms $($rest)*);
    };
    (
        @match $this:expr, { $($(#[$at:meta])* $pattern:pat => $place:expr),+ $(,)? },
        mut, $name:ident $arguments:tt
    ) => {
        match $this {
            $(
                $(#[$at])*
                $pattern => $crate::forward_congestion_control!(@call $name, &mut $place, $arguments),
            )+
        }
    };
    (
        @match $this:expr, { $($(#[$at:meta])* $pattern:pat => $place:expr),+ $(,)? },
        const, $name:ident()
    ) => {
        match $this { $($(#[$at])* $pattern => $crate::CongestionControl::$name(&$place),)+ }
    };
    (@call $name:ident, $place:expr, ($($argument:ident),*)) => {
        $crate::CongestionControl::$name($place $(, $argument)*)
    };
}

forward_congestion_control! {
    /// A mutable reference to a controller is a controller.
    impl[C: CongestionControl + ?Sized] for &mut C { c => **c }
}

#[cfg(feature = "alloc")]
forward_congestion_control! {
    /// A boxed controller is a controller, `Box<dyn CongestionControl>` included.
    impl[C: CongestionControl + ?Sized] for alloc::boxed::Box<C> { c => **c }
}
