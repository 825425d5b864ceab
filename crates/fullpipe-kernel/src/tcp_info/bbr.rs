//! The versions of the running kernel's BBRs, and whether the path or its controller limits a sender.

use super::{CcInfo, pin};
use crate::facts::available_controllers;
use crate::socket;
use fullpipe_units::{Rate, Span};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

/// The version of the kernel's BBR that is registered as `name`, from a socket that is never
/// connected. `None` if it is not registered, if this process may not select it, or if it reports no
/// state (an eBPF program). Loads no module.
pub fn bbr_version(name: &str) -> Option<u8> {
    if !name.starts_with("bbr") || !available_controllers().ok()?.iter().any(|one| one == name) {
        return None;
    }
    let socket = socket::tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).ok()?;
    pin(&socket, name).ok()?;
    match CcInfo::query(&socket).ok()?? {
        CcInfo::Bbr(bbr) => Some(bbr.version()),
        _ => None,
    }
}

/// The version of each registered BBR of the kernel, by name; those of unknown version are left out.
pub fn bbr_versions() -> BTreeMap<String, u8> {
    let names = available_controllers().unwrap_or_default();
    let version = |name: String| bbr_version(&name).map(|version| (name, version));
    names.into_iter().filter_map(version).collect()
}

/// Share of lost packets above which BBR v3 ends its probes and limits inflight (`LossThresh` of the
/// draft, 2 %).
pub const V3_LOSS_THRESHOLD: f64 = 0.02;

/// What is known about a sender that is limited neither by its application nor by a buffer.
#[derive(Clone, Copy, Debug, Default)]
pub struct PathSender<'a> {
    /// The congestion controller.
    pub controller: &'a str,
    /// Whether it reports an estimate of the path's bandwidth.
    pub has_model: bool,
    /// The version of BBR that it reports.
    pub bbr_version: Option<u8>,
    /// The short-term bandwidth bound of BBR v3, if it has one.
    pub bw_lo: Option<Rate>,
    /// Its long-term bandwidth bound.
    pub bw_hi: Option<Rate>,
    /// Share of its data segments that were retransmitted.
    pub loss: f64,
    /// The smoothed RTT.
    pub srtt: Span,
    /// The minimum RTT, if known.
    pub min_rtt: Option<Span>,
}

impl PathSender<'_> {
    /// Whether the path's bandwidth limits it; otherwise its congestion controller leaves capacity
    /// unused.
    ///
    /// A sender that builds a queue fills the path. BBR of any version, or another controller with an
    /// estimate of the bandwidth, sends at that estimate, with or without a queue, unless
    /// [`responds_to_loss`](Self::responds_to_loss).
    pub fn is_path_limited(&self) -> bool {
        // Controllers that are eBPF programs report no model to sock_diag (they have no `get_info`).
        let has_model = self.has_model || self.controller.contains("bbr");
        self.has_queue() || (has_model && !self.responds_to_loss())
    }

    /// Whether a queue is standing. Delayed ACKs lengthen round trips on LANs by about a millisecond.
    pub fn has_queue(&self) -> bool {
        let queue = self.min_rtt.map(|min| self.srtt.as_millis_f64() - min.as_millis_f64());
        let min = self.min_rtt.map_or(0.0, Span::as_millis_f64);
        queue.is_some_and(|queue| queue > (min / 4.0).max(1.0))
    }

    /// Whether it is BBR v3 and slowed down by its response to loss: it loses more than
    /// [`V3_LOSS_THRESHOLD`], or the short-term bound that a round with loss sets is below the
    /// bandwidth that it measured.
    pub fn responds_to_loss(&self) -> bool {
        let version = self.bbr_version.or(match self.controller {
            "bbr3" | "fp_bbr3" => Some(3),
            _ => None,
        });
        let is_bounded = self.bw_lo.zip(self.bw_hi).is_some_and(|(lo, hi)| lo < hi);
        version == Some(3) && (self.loss > V3_LOSS_THRESHOLD || is_bounded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_is_not_connected_reports_the_version_of_each_bbr() {
        let available = available_controllers().unwrap();
        let versions = bbr_versions();
        assert!(versions.keys().all(|name| available.contains(name)), "{versions:?}");
        assert_eq!(bbr_version("bbr"), versions.get("bbr").copied());
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        if available.iter().any(|name| name == "bbr") && pin(&socket, "bbr").is_ok() {
            assert!(matches!(versions.get("bbr"), Some(1..)), "{versions:?}");
        }
        assert_eq!((bbr_version("reno"), bbr_version("bbr_absent")), (None, None));
    }

    fn sender(controller: &str, srtt: u64, min_rtt: Option<u64>) -> PathSender<'_> {
        let (srtt, min_rtt) = (Span::from_millis(srtt), min_rtt.map(Span::from_millis));
        PathSender { controller, srtt, min_rtt, ..PathSender::default() }
    }

    #[test]
    fn bbr_is_limited_by_the_path_and_others_if_they_build_a_queue() {
        for name in ["bbr", "bbr3", "fp_bbr1", "fp_bbr3"] {
            assert!(sender(name, 41, Some(40)).is_path_limited(), "{name}");
        }
        let renamed = PathSender { has_model: true, ..sender("mine", 41, Some(40)) };
        assert!(renamed.is_path_limited(), "BBR under another name");
        let cubic = |srtt, min_rtt| sender("cubic", srtt, min_rtt).is_path_limited();
        assert!(!cubic(41, Some(40)) && cubic(80, Some(40)));
        // A quarter more, or a millisecond, is normal variation.
        assert!(!cubic(50, Some(40)) && !cubic(2, Some(1)) && !cubic(80, None));
    }

    #[test]
    fn bbr_v3_is_limited_by_its_response_to_loss_unless_a_queue_is_standing() {
        let at = |controller, bbr_version, loss| PathSender {
            bbr_version,
            loss,
            ..sender(controller, 41, Some(40))
        };
        for (v3, version) in [("bbr", Some(3)), ("bbr3", None), ("fp_bbr3", None), ("mine", Some(3))] {
            let lossy = PathSender { has_model: true, ..at(v3, version, 0.05) };
            assert!(lossy.responds_to_loss() && !lossy.is_path_limited(), "{v3}");
            let clean = PathSender { loss: V3_LOSS_THRESHOLD, ..lossy };
            assert!(!clean.responds_to_loss() && clean.is_path_limited(), "{v3}");
            let mbit = |rate: u64| Some(Rate::from_bits_per_sec(rate * 1_000_000));
            let bounded = PathSender { bw_lo: mbit(7), bw_hi: mbit(20), ..clean };
            assert!(bounded.responds_to_loss() && !bounded.is_path_limited(), "{v3}");
            assert!(PathSender { bw_lo: mbit(20), ..bounded }.is_path_limited(), "{v3}: it binds nothing");
            let queue = PathSender { srtt: Span::from_millis(80), ..lossy };
            assert!(queue.is_path_limited(), "{v3}: it lost in a full queue");
        }
        for (v1, version) in [("bbr", Some(1)), ("bbr", None), ("fp_bbr1", None), ("bbr3", Some(1))] {
            assert!(at(v1, version, 0.05).is_path_limited(), "{v1}");
        }
        assert!(!at("cubic", None, 0.05).responds_to_loss());
    }
}
