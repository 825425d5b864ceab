//! A socket sample in plain numbers, for tables, reports and JSON.

use crate::printable;
use fullpipe_kernel::sock_diag::TcpSocket;
use fullpipe_kernel::tcp_info::{CcInfo, TcpInfo, controller};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::AsFd;

/// Maximum length of a text in a peer's message.
const MAX_TEXT: usize = 64;

/// A peer's text, made printable and cut to [`MAX_TEXT`] bytes.
pub(crate) fn peer_text(text: &str) -> String {
    printable::line(&text[..text.floor_char_boundary(MAX_TEXT)]).into_owned()
}

/// The state of one TCP socket. Counters start with the connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SocketSample {
    /// The controller in use, as read from the socket.
    pub controller: String,
    /// Smoothed RTT, µs.
    pub rtt_us: u64,
    /// Mean deviation of the RTT, µs.
    pub rttvar_us: u64,
    /// Minimum RTT, µs.
    pub min_rtt_us: Option<u64>,
    /// The receiver's RTT estimate, µs; 0 if unknown.
    pub rcv_rtt_us: u64,
    /// Congestion window, bytes.
    pub cwnd: u64,
    /// Slow-start threshold, bytes; `None` before the first reduction.
    pub ssthresh: Option<u64>,
    /// Bytes of payload in a full segment.
    pub mss: u32,
    /// Path MTU, bytes.
    pub pmtu: u32,
    /// Segments retransmitted.
    pub retransmits: u64,
    /// Bytes in flight.
    pub inflight: u64,
    /// Bytes in the send buffer that were never sent.
    pub notsent: Option<u64>,
    /// The latest delivery-rate sample, bytes per second.
    pub delivery_rate: Option<u64>,
    /// Whether that sample was limited by the application.
    pub app_limited: bool,
    /// Pacing rate, bytes per second.
    pub pacing_rate: Option<u64>,
    /// Bytes acknowledged.
    pub bytes_acked: Option<u64>,
    /// Bytes retransmitted.
    pub bytes_retrans: Option<u64>,
    /// Time with data to send or in flight, µs.
    pub busy_us: Option<u64>,
    /// Busy time limited by the peer's receive window, µs.
    pub rwnd_limited_us: Option<u64>,
    /// Busy time limited by the send buffer, µs.
    pub sndbuf_limited_us: Option<u64>,
    /// The peer's receive window, bytes.
    pub snd_wnd: Option<u64>,
    /// Local receive window, bytes.
    pub rcv_wnd: Option<u64>,
    /// Segments that arrived out of order.
    pub rcv_ooopack: Option<u64>,
    /// Segments delivered with an ECN mark (Congestion Experienced).
    #[serde(default)]
    pub delivered_ce: Option<u64>,
    /// BBR's bandwidth estimate, bytes per second.
    pub bbr_bw: Option<u64>,
    /// BBR's state: as v3 reports it, or inferred from the gains of v1.
    #[serde(default)]
    pub bbr_mode: Option<String>,
    /// BBR's version.
    #[serde(default)]
    pub bbr_version: Option<u8>,
    /// BBR's estimate of the round-trip propagation time, µs.
    #[serde(default)]
    pub bbr_min_rtt_us: Option<u64>,
    /// BBR's pacing rate over its bandwidth estimate.
    #[serde(default)]
    pub bbr_pacing_gain: Option<f64>,
    /// BBR's window over the estimated bandwidth-delay product.
    #[serde(default)]
    pub bbr_cwnd_gain: Option<f64>,
    /// The long-term bandwidth bound of BBR v3, bytes per second.
    #[serde(default)]
    pub bbr_bw_hi: Option<u64>,
    /// Its short-term bandwidth bound, bytes per second; `None` while it has none.
    #[serde(default)]
    pub bbr_bw_lo: Option<u64>,
    /// Its long-term inflight bound, bytes; `None` while it has none.
    #[serde(default)]
    pub bbr_inflight_hi: Option<u64>,
    /// Its short-term inflight bound, bytes; `None` while it has none.
    #[serde(default)]
    pub bbr_inflight_lo: Option<u64>,
    /// Its estimate of what ACK aggregation acknowledges beyond the bandwidth, bytes.
    #[serde(default)]
    pub bbr_extra_acked: Option<u64>,
}

impl SocketSample {
    /// Queries the kernel.
    ///
    /// # Errors
    /// If the descriptor is not a TCP socket.
    pub fn query(socket: &impl AsFd) -> io::Result<SocketSample> {
        let sample = SocketSample::from_info(&TcpInfo::query(socket)?, controller(socket)?);
        Ok(sample.with_cc_info(CcInfo::query(socket)?.as_ref()))
    }

    /// Converts a sock_diag entry, if it has all attributes.
    pub fn from_diag(socket: &TcpSocket) -> Option<SocketSample> {
        let controller = socket.controller.clone().unwrap_or_default();
        let sample = SocketSample::from_info(socket.info.as_ref()?, controller);
        Some(sample.with_cc_info(socket.cc_info.as_ref()))
    }

    /// Adds the controller's own state.
    pub(crate) fn with_cc_info(mut self, cc_info: Option<&CcInfo>) -> SocketSample {
        if let Some(CcInfo::Bbr(bbr)) = cc_info {
            self.bbr_bw = Some(bbr.bw.as_bytes_per_sec());
            self.bbr_mode = bbr.state().map(str::to_owned);
            self.bbr_version = Some(bbr.version());
            self.bbr_min_rtt_us = Some(bbr.min_rtt.as_micros()).filter(|us| *us < u64::from(u32::MAX));
            self.bbr_pacing_gain = Some(bbr.pacing_gain.as_f64());
            self.bbr_cwnd_gain = Some(bbr.cwnd_gain.as_f64());
            let bytes = |segments: u32| u64::from(segments) * u64::from(self.mss);
            if let Some(v3) = bbr.v3 {
                self.bbr_bw_hi = Some(v3.bw_hi.as_bytes_per_sec());
                self.bbr_bw_lo = v3.bw_lo.map(|bw| bw.as_bytes_per_sec());
                self.bbr_inflight_hi = v3.inflight_hi.map(bytes);
                self.bbr_inflight_lo = v3.inflight_lo.map(bytes);
                self.bbr_extra_acked = Some(bytes(v3.extra_acked));
            }
        }
        self
    }

    /// Converts `TCP_INFO` of a socket with this controller.
    pub fn from_info(info: &TcpInfo, controller: String) -> SocketSample {
        let mss = u64::from(info.snd_mss);
        SocketSample {
            controller,
            rtt_us: info.rtt.as_micros(),
            rttvar_us: info.rttvar.as_micros(),
            min_rtt_us: info.min_rtt.map(|t| t.as_micros()),
            rcv_rtt_us: info.rcv_rtt.as_micros(),
            cwnd: info.cwnd_bytes(),
            ssthresh: (info.snd_ssthresh < i32::MAX as u32).then(|| u64::from(info.snd_ssthresh) * mss),
            mss: info.snd_mss,
            pmtu: info.pmtu,
            retransmits: info.total_retrans.into(),
            inflight: u64::from(info.inflight()) * mss,
            notsent: info.notsent_bytes.map(u64::from),
            delivery_rate: info.delivery_rate.map(|r| r.as_bytes_per_sec()),
            app_limited: info.delivery_rate_app_limited,
            pacing_rate: info.pacing_rate.map(|r| r.as_bytes_per_sec()),
            bytes_acked: info.bytes_acked,
            bytes_retrans: info.bytes_retrans,
            busy_us: info.busy_time.map(|t| t.as_micros()),
            rwnd_limited_us: info.rwnd_limited.map(|t| t.as_micros()),
            sndbuf_limited_us: info.sndbuf_limited.map(|t| t.as_micros()),
            snd_wnd: info.snd_wnd.map(u64::from),
            rcv_wnd: info.rcv_wnd.map(u64::from),
            rcv_ooopack: info.rcv_ooopack.map(u64::from),
            delivered_ce: info.delivered_ce.map(u64::from),
            ..SocketSample::default()
        }
    }

    /// Makes a peer's sample printable and short: a copy is kept for every interval.
    pub(crate) fn printable(mut self) -> SocketSample {
        self.controller = peer_text(&self.controller);
        self.bbr_mode = self.bbr_mode.map(|mode| peer_text(&mode));
        self
    }

    /// This sample with counters relative to `before`.
    pub fn since(&self, before: &SocketSample) -> SocketSample {
        let less = |now: Option<u64>, before: Option<u64>| now.map(|n| n.saturating_sub(before.unwrap_or(0)));
        SocketSample {
            retransmits: self.retransmits.saturating_sub(before.retransmits),
            bytes_acked: less(self.bytes_acked, before.bytes_acked),
            bytes_retrans: less(self.bytes_retrans, before.bytes_retrans),
            busy_us: less(self.busy_us, before.busy_us),
            rwnd_limited_us: less(self.rwnd_limited_us, before.rwnd_limited_us),
            sndbuf_limited_us: less(self.sndbuf_limited_us, before.sndbuf_limited_us),
            rcv_ooopack: less(self.rcv_ooopack, before.rcv_ooopack),
            delivered_ce: less(self.delivered_ce, before.delivered_ce),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_testing::bbr_v3_of_each_phase;

    #[test]
    fn bbr_v3_is_named_with_its_own_states_and_bounds() {
        for (bytes, state) in bbr_v3_of_each_phase() {
            let sample = SocketSample { mss: 1000, ..SocketSample::default() };
            let sample = sample.with_cc_info(CcInfo::decode("bbr", &bytes).as_ref());
            assert_eq!((sample.bbr_mode.as_deref(), sample.bbr_version), (Some(state), Some(3)));
            assert_eq!((sample.bbr_bw_hi, sample.bbr_bw_lo), (Some(2_500_000), None));
            assert_eq!((sample.bbr_inflight_hi, sample.bbr_inflight_lo), (Some(90_000), None));
            assert_eq!((sample.bbr_extra_acked, sample.bbr_min_rtt_us), (Some(7000), Some(40_000)));
            let json = serde_json::to_value(&sample).unwrap();
            assert_eq!((&json["bbr_mode"], &json["bbr_version"]), (&state.into(), &3.into()));
        }
        let (bytes, _) = &bbr_v3_of_each_phase()[3];
        let sample = SocketSample::default().with_cc_info(CcInfo::decode("bbr", &bytes[..20]).as_ref());
        assert_eq!((sample.bbr_version, sample.bbr_bw_hi), (Some(1), None));
    }

    #[test]
    fn a_sample_of_an_earlier_version_is_read() {
        let mut json = serde_json::to_value(SocketSample::default()).unwrap();
        json.as_object_mut().unwrap().retain(|name, _| !name.starts_with("bbr_") || name == "bbr_bw");
        assert_eq!(serde_json::from_value::<SocketSample>(json).unwrap(), SocketSample::default());
    }

    #[test]
    fn text_of_a_peer_is_kept_short() {
        let long = "\u{202e}".repeat(300_000);
        let sample =
            SocketSample { controller: long.clone(), bbr_mode: Some(long), ..SocketSample::default() }
                .printable();
        for text in [&sample.controller, sample.bbr_mode.as_ref().unwrap()] {
            assert!(text.len() < 1000 && text.capacity() < 2000 && text.is_ascii(), "{}", text.len());
        }
        assert_eq!(peer_text("bbr"), "bbr");
    }
}
