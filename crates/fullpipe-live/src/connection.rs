//! One connection of the host in one sample.

use crate::filter::Subject;
use crate::owner::{Owner, shared};
use fullpipe_experiment::connection::LimitShare;
use fullpipe_kernel::sock_diag::SocketView;
use fullpipe_kernel::tcp_info::{CaState, CcInfo, State, TcpInfo};
use fullpipe_units::{Rate, Span};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};
use std::net::SocketAddr;
use std::sync::Arc;

/// A connection, with its activity since the previous sample.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct Connection {
    /// The kernel's unique ID of the socket (`SO_COOKIE`).
    pub cookie: u64,
    /// Local address and port.
    pub local: SocketAddr,
    /// Remote address and port.
    pub remote: SocketAddr,
    /// TCP state.
    #[schemars(schema_with = "states")]
    pub state: State,
    /// Name of the congestion controller.
    #[serde(serialize_with = "shared", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub controller: Option<Arc<str>>,
    /// Time since the connection was first observed, in seconds.
    #[serde(rename = "watched_s", serialize_with = "seconds")]
    #[schemars(with = "f64")]
    pub watched: Span,
    /// Owning process and control group.
    #[serde(flatten)]
    pub owner: Owner,
    /// Payload acknowledged since the previous sample, bit/s.
    #[serde(
        rename = "sending_bps",
        serialize_with = "optional_bps",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<f64>")]
    pub sending: Option<Rate>,
    /// Payload received since the previous sample, bit/s.
    #[serde(
        rename = "receiving_bps",
        serialize_with = "optional_bps",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<f64>")]
    pub receiving: Option<Rate>,
    /// Retransmitted share of the data segments sent since the previous sample; `None` if none was
    /// sent.
    #[serde(rename = "retransmitted_ratio", skip_serializing_if = "Option::is_none")]
    pub retransmitted: Option<f64>,
    /// What limited the connection since the previous sample, as shares of the time, largest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<LimitShare>,
    /// The congestion controller's model of the path, if it exposes one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Box<PathModel>>,
    /// Values of `TCP_INFO`, if the kernel supplied it.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub figures: Option<Figures>,
}

/// `TCP_INFO` in the units of this project.
#[derive(Clone, PartialEq, Debug, Serialize, JsonSchema)]
pub struct Figures {
    /// Smoothed round-trip time.
    #[serde(rename = "srtt_ms", serialize_with = "millis")]
    #[schemars(with = "f64")]
    pub srtt: Span,
    /// Minimum round-trip time of the last minutes (`tcp_min_rtt_wlen`).
    #[serde(
        rename = "min_rtt_ms",
        serialize_with = "optional_millis",
        skip_serializing_if = "Option::is_none"
    )]
    #[schemars(with = "Option<f64>")]
    pub min_rtt: Option<Span>,
    /// Retransmission timeout.
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
    /// Segments in flight.
    pub inflight_segments: u32,
    /// State of loss recovery (`enum tcp_ca_state`).
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
    /// Payload received since the connection began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received_bytes: Option<u64>,
    /// Data segments sent since the connection began, with retransmissions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_segments: Option<u32>,
    /// Segments retransmitted since the connection began.
    pub retransmitted_segments: u32,
    /// Bytes in the send buffer not yet sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsent_bytes: Option<u32>,
    /// The window that the receiver announced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receive_window_bytes: Option<u32>,
}

/// A congestion controller's model of the path.
#[derive(Clone, PartialEq, Debug, Default, Serialize, JsonSchema)]
pub struct PathModel {
    /// State of its state machine, if exposed or derivable from its gains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Estimated bottleneck bandwidth.
    #[serde(rename = "bw_bps", serialize_with = "optional_bps", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<f64>")]
    pub bw: Option<Rate>,
    /// Estimated round-trip propagation time.
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
    /// Version of BBR; none for other controllers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u8>,
    /// Long-term bandwidth bound of BBR v3.
    #[serde(rename = "bw_hi_bps", serialize_with = "optional_bps", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<f64>")]
    pub bw_hi: Option<Rate>,
    /// Short-term bandwidth bound of BBR v3; none while it has none.
    #[serde(rename = "bw_lo_bps", serialize_with = "optional_bps", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<f64>")]
    pub bw_lo: Option<Rate>,
    /// Long-term inflight bound of BBR v3 in segments; none while it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inflight_hi_segments: Option<u32>,
    /// Short-term inflight bound of BBR v3 in segments; none while it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inflight_lo_segments: Option<u32>,
    /// Segments acknowledged beyond what the bandwidth explains, as estimated by BBR v3.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extra_acked_segments: Option<u32>,
}

impl Connection {
    /// A connection from its socket; activity and owner are filled in later.
    pub(crate) fn from_socket(
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
            model: socket.cc_info().and_then(|info| PathModel::from_cc_info(&info)).map(Box::new),
            figures: info.map(Figures::from_tcp_info),
        }
    }

    /// The properties that filters test.
    pub(crate) fn subject(&self) -> Subject<'_> {
        Subject {
            local: self.local,
            remote: self.remote,
            state: self.state,
            controller: self.controller.as_deref(),
            owner: &self.owner,
        }
    }

    /// Queueing delay: smoothed RTT minus minimum RTT. `None` without samples.
    pub fn queueing(&self) -> Option<Span> {
        let figures = self.figures.as_ref()?;
        let min = figures.min_rtt?.as_nanos();
        Some(Span::from_nanos(figures.srtt.as_nanos().saturating_sub(min)))
    }

    /// The dominant limit.
    pub fn limited_by(&self) -> Option<LimitShare> {
        self.limits.first().copied()
    }
}

impl Figures {
    pub(crate) fn from_tcp_info(info: &TcpInfo) -> Figures {
        /// `TCP_INFINITE_SSTHRESH`.
        const INFINITE: u32 = 0x7fff_ffff;
        Figures {
            srtt: info.rtt,
            min_rtt: info.min_rtt,
            rto: info.rto,
            mss_bytes: info.snd_mss,
            cwnd_segments: info.snd_cwnd,
            ssthresh_segments: Some(info.snd_ssthresh).filter(|s| *s < INFINITE),
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

/// Names as in `enum tcp_ca_state`.
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

impl PathModel {
    pub(crate) fn from_cc_info(info: &CcInfo) -> Option<PathModel> {
        match info {
            // A socket that has never sent has no model yet; its other values are unset too.
            CcInfo::Bbr(bbr) if bbr.bw == Rate::ZERO => None,
            CcInfo::Bbr(bbr) => Some(PathModel {
                state: bbr.state().map(str::to_owned),
                bw: Some(bbr.bw),
                min_rtt: Some(bbr.min_rtt),
                pacing_gain: Some(bbr.pacing_gain.as_f64()),
                cwnd_gain: Some(bbr.cwnd_gain.as_f64()),
                version: Some(bbr.version()),
                bw_hi: bbr.v3.map(|v3| v3.bw_hi),
                bw_lo: bbr.v3.and_then(|v3| v3.bw_lo),
                inflight_hi_segments: bbr.v3.and_then(|v3| v3.inflight_hi),
                inflight_lo_segments: bbr.v3.and_then(|v3| v3.inflight_lo),
                extra_acked_segments: bbr.v3.map(|v3| v3.extra_acked),
            }),
            // Unset at the start of each round trip (`vegas_enable`: 0x7fffffff).
            CcInfo::Vegas(vegas) => Some(vegas.min_rtt)
                .filter(|rtt| !rtt.is_zero() && *rtt < Span::from_micros(0x7fff_ffff))
                .map(|rtt| PathModel { min_rtt: Some(rtt), ..PathModel::default() }),
            CcInfo::Dctcp(_) => None,
        }
    }
}

/// TCP states that appear in samples (`fullpipe_kernel::sock_diag::States::CONNECTED`).
fn states(_: &mut SchemaGenerator) -> Schema {
    let sampled = (1..12)
        .map(State::from_number)
        .filter(|s| !matches!(s, State::TimeWait | State::Close | State::Listen));
    json_schema!({ "type": "string", "enum": sampled.map(|s| format!("{s:?}")).collect::<Vec<_>>() })
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

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_testing::bbr_v3_of_each_phase;

    #[test]
    fn every_state_of_bbr_v3_is_shown() {
        for (bytes, state) in bbr_v3_of_each_phase() {
            assert_eq!(bytes.len(), 52);
            let info = CcInfo::decode("bbr", &bytes).unwrap();
            let model = PathModel::from_cc_info(&info).unwrap();
            assert_eq!((model.state.as_deref(), model.version), (Some(state), Some(3)));
            assert_eq!((model.inflight_hi_segments, model.inflight_lo_segments), (Some(90), None));
            let json = serde_json::to_value(&model).unwrap();
            assert_eq!((&json["bw_hi_bps"], &json["extra_acked_segments"]), (&20e6.into(), &7.into()));
            assert!(json.get("bw_lo_bps").is_none(), "{json}");
        }
    }
}
