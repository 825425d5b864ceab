//! One connection of the host at one time.

use crate::filter::Subject;
use crate::owner::{Owner, shared};
use fullpipe_experiment::connection::LimitShare;
use fullpipe_kernel::sock_diag::SocketView;
use fullpipe_kernel::tcp_info::{BbrMode, CaState, CcInfo, State, TcpInfo};
use fullpipe_units::{Rate, Span};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};
use std::net::SocketAddr;
use std::sync::Arc;

/// A connection, and what happened on it since the look before.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct Connection {
    /// The kernel's lasting name for the socket.
    pub cookie: u64,
    /// Its own end.
    pub local: SocketAddr,
    /// The other end.
    pub remote: SocketAddr,
    /// Of the connection.
    #[schemars(schema_with = "states")]
    pub state: State,
    /// The name of its controller.
    #[serde(serialize_with = "shared", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub controller: Option<Arc<str>>,
    /// For how long it has been watched, in seconds.
    #[serde(rename = "watched_s", serialize_with = "seconds")]
    #[schemars(with = "f64")]
    pub watched: Span,
    /// Who holds it.
    #[serde(flatten)]
    pub owner: Owner,
    /// Payload acknowledged since the look before, per second.
    #[serde(
        rename = "sending_bps",
        serialize_with = "optional_bps",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<f64>")]
    pub sending: Option<Rate>,
    /// Payload received since then, per second.
    #[serde(
        rename = "receiving_bps",
        serialize_with = "optional_bps",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<f64>")]
    pub receiving: Option<Rate>,
    /// Segments sent again since then, as a share of the data segments sent. None if none was sent.
    #[serde(rename = "retransmitted_ratio", skip_serializing_if = "Option::is_none")]
    pub retransmitted: Option<f64>,
    /// What limited it since then, as shares of the time, the greatest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LimitShare>,
    /// What its controller believes, where it tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beliefs: Option<Box<Beliefs>>,
    /// The kernel's figures, if it gave them.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub figures: Option<Figures>,
}

/// What `TCP_INFO` says, in the units of this project.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct Figures {
    /// Smoothed round-trip time.
    #[serde(rename = "srtt_ms", serialize_with = "millis")]
    #[schemars(with = "f64")]
    pub srtt: Span,
    /// The least of the last minutes.
    #[serde(
        rename = "min_rtt_ms",
        serialize_with = "optional_millis",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<f64>")]
    pub min_rtt: Option<Span>,
    /// Retransmission time-out.
    #[serde(rename = "rto_ms", serialize_with = "millis")]
    #[schemars(with = "f64")]
    pub rto: Span,
    /// Payload bytes of a full segment.
    pub mss_bytes: u32,
    /// Congestion window in segments.
    pub cwnd_segments: u32,
    /// Slow-start threshold in segments; none until the first reduction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssthresh_segments: Option<u32>,
    /// In flight, in segments.
    pub inflight_segments: u32,
    /// What the connection's loss recovery is doing.
    pub recovery: &'static str,
    /// Pacing rate.
    #[serde(rename = "pacing_bps", serialize_with = "optional_bps", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<f64>")]
    pub pacing: Option<Rate>,
    /// The latest delivery-rate sample.
    #[serde(
        rename = "delivery_bps",
        serialize_with = "optional_bps",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<f64>")]
    pub delivery: Option<Rate>,
    /// Whether that sample was taken while the application had nothing to send.
    pub delivery_app_limited: bool,
    /// Payload acknowledged since the connection began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acked_bytes: Option<u64>,
    /// Payload received since then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received_bytes: Option<u64>,
    /// Data segments sent since then, with those sent again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_segments: Option<u32>,
    /// Segments sent again since then.
    pub retransmitted_segments: u32,
    /// Bytes in the send buffer that were never sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsent_bytes: Option<u32>,
    /// The window that the receiver announced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_window_bytes: Option<u32>,
}

/// What a controller believes of the path.
#[derive(Clone, PartialEq, Debug, Default, Serialize, JsonSchema)]
pub struct Beliefs {
    /// The state of its state machine, where it tells or its gains do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Bottleneck bandwidth.
    #[serde(rename = "bw_bps", serialize_with = "optional_bps", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<f64>")]
    pub bw: Option<Rate>,
    /// Round-trip propagation time.
    #[serde(
        rename = "min_rtt_ms",
        serialize_with = "optional_millis",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<f64>")]
    pub min_rtt: Option<Span>,
    /// Pacing rate over bandwidth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pacing_gain: Option<f64>,
    /// Window over bandwidth-delay product.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwnd_gain: Option<f64>,
}

impl Connection {
    /// What a socket with these ends says of itself; what happened is not known yet, nor who holds it.
    pub(crate) fn of(
        socket: &SocketView<'_>,
        (local, remote): (SocketAddr, SocketAddr),
        controller: Option<Arc<str>>,
        info: Option<&TcpInfo>,
    ) -> Connection {
        Connection {
            cookie: socket.cookie(),
            local,
            remote,
            state: socket.state(),
            controller,
            watched: Span::ZERO,
            owner: Owner::default(),
            sending: None,
            receiving: None,
            retransmitted: None,
            limits: Vec::new(),
            beliefs: socket.cc_info().and_then(|told| Beliefs::of(&told)).map(Box::new),
            figures: info.map(Figures::of),
        }
    }

    /// It, as filters ask for it.
    pub(crate) fn subject(&self) -> Subject<'_> {
        Subject {
            local: self.local,
            remote: self.remote,
            state: self.state,
            controller: self.controller.as_deref(),
            owner: &self.owner,
        }
    }

    /// The round trip beyond the least: what packets wait in queues. None without samples.
    pub fn queueing(&self) -> Option<Span> {
        let figures = self.figures.as_ref()?;
        let least = figures.min_rtt?.as_nanos();
        Some(Span::from_nanos(figures.srtt.as_nanos().saturating_sub(least)))
    }

    /// What limited most of the time.
    pub fn limited_by(&self) -> Option<LimitShare> {
        self.limits.first().copied()
    }
}

impl Figures {
    pub(crate) fn of(info: &TcpInfo) -> Figures {
        /// `TCP_INFINITE_SSTHRESH`.
        const NONE_YET: u32 = 0x7fff_ffff;
        Figures {
            srtt: info.rtt,
            min_rtt: info.min_rtt,
            rto: info.rto,
            mss_bytes: info.snd_mss,
            cwnd_segments: info.snd_cwnd,
            ssthresh_segments: Some(info.snd_ssthresh).filter(|s| *s < NONE_YET),
            inflight_segments: info.inflight(),
            recovery: recovery(info.ca_state),
            pacing: info.pacing_rate,
            delivery: info.delivery_rate,
            delivery_app_limited: info.delivery_rate_app_limited,
            acked_bytes: info.bytes_acked,
            received_bytes: info.bytes_received,
            sent_segments: info.data_segs_out,
            retransmitted_segments: info.total_retrans,
            unsent_bytes: info.notsent_bytes,
            receive_window_bytes: info.snd_wnd,
        }
    }
}

/// The kernel's names (`enum tcp_ca_state`).
fn recovery(state: CaState) -> &'static str {
    match state {
        CaState::Open => "Open",
        CaState::Disorder => "Disorder",
        CaState::Cwr => "CWR",
        CaState::Recovery => "Recovery",
        CaState::Loss => "Loss",
        CaState::Other(_) => "unknown",
    }
}

impl Beliefs {
    fn of(told: &CcInfo) -> Option<Beliefs> {
        match told {
            // An end that has never sent has no model yet; the rest of its figures are not set either.
            CcInfo::Bbr(bbr) if bbr.bw == Rate::ZERO => None,
            CcInfo::Bbr(bbr) => Some(Beliefs {
                state: bbr.mode().map(|mode| {
                    match mode {
                        BbrMode::Startup => "Startup",
                        BbrMode::Drain => "Drain",
                        BbrMode::ProbeBw => "ProbeBW",
                        BbrMode::ProbeRtt => "ProbeRTT",
                    }
                    .to_owned()
                }),
                bw: Some(bbr.bw),
                min_rtt: Some(bbr.min_rtt),
                pacing_gain: Some(bbr.pacing_gain.as_f64()),
                cwnd_gain: Some(bbr.cwnd_gain.as_f64()),
            }),
            // At the start of each round trip it knows none (`vegas_enable`: 0x7fffffff).
            CcInfo::Vegas(vegas) => Some(vegas.min_rtt)
                .filter(|least| !least.is_zero() && *least < Span::from_micros(0x7fff_ffff))
                .map(|least| Beliefs { min_rtt: Some(least), ..Beliefs::default() }),
            CcInfo::Dctcp(_) => None,
        }
    }
}

/// The states in which a connection is told of (`fullpipe_kernel::sock_diag::States::CONNECTED`).
fn states(_: &mut SchemaGenerator) -> Schema {
    let told = (1..12)
        .map(State::from_number)
        .filter(|s| !matches!(s, State::TimeWait | State::Close | State::Listen));
    json_schema!({ "type": "string", "enum": told.map(|s| format!("{s:?}")).collect::<Vec<_>>() })
}

fn seconds<S: Serializer>(span: &Span, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_f64(span.as_secs_f64())
}

fn millis<S: Serializer>(span: &Span, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_f64(span.as_millis_f64())
}

fn optional_millis<S: Serializer>(span: &Option<Span>, s: S) -> Result<S::Ok, S::Error> {
    span.map(Span::as_millis_f64).serialize(s)
}

pub(crate) fn optional_bps<S: Serializer>(rate: &Option<Rate>, s: S) -> Result<S::Ok, S::Error> {
    rate.map(Rate::as_bits_per_sec_f64).serialize(s)
}
