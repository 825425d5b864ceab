//! The versions of the running kernel's BBRs, and what limits a sender that paces at a model.

use super::{CcInfo, pin};
use crate::facts::available_controllers;
use crate::socket;
use fullpipe_units::Span;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

/// The version of the kernel's BBR that is registered as `name`, from a socket that is never
/// connected. `None` if it is not registered, if this process may not select it, and if it reports no
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

/// The version of each of the kernel's BBRs that are registered, by name; without those of which it
/// is unknown.
pub fn bbr_versions() -> BTreeMap<String, u8> {
    let names = available_controllers().unwrap_or_default();
    let version = |name: String| bbr_version(&name).map(|version| (name, version));
    names.into_iter().filter_map(version).collect()
}

/// Whether a sender that is limited neither by its application nor by a buffer is limited by the
/// path's bandwidth; otherwise its congestion window leaves capacity unused.
///
/// BBR of any version, or another controller with an estimate of the bandwidth (`has_model`), sends at
/// that estimate, with or without a queue. The window of another controller fills the path if it
/// builds a queue. Delayed ACKs lengthen round trips on LANs by about a millisecond.
pub fn is_path_limited(controller: &str, has_model: bool, srtt: Span, min_rtt: Option<Span>) -> bool {
    // Controllers that are eBPF programs report no model to sock_diag (they have no `get_info`).
    if has_model || controller.contains("bbr") {
        return true;
    }
    let queue = min_rtt.map(|min| srtt.as_millis_f64() - min.as_millis_f64());
    let min = min_rtt.map_or(0.0, Span::as_millis_f64);
    queue.is_some_and(|queue| queue > (min / 4.0).max(1.0))
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

    #[test]
    fn bbr_is_limited_by_the_path_and_others_if_they_build_a_queue() {
        let ms = Span::from_millis;
        for name in ["bbr", "bbr3", "fp_bbr1", "fp_bbr3"] {
            assert!(is_path_limited(name, false, ms(41), Some(ms(40))), "{name}");
        }
        assert!(is_path_limited("mine", true, ms(41), Some(ms(40))), "BBR under another name");
        let cubic = |srtt, min_rtt| is_path_limited("cubic", false, srtt, min_rtt);
        assert!(!cubic(ms(41), Some(ms(40))) && cubic(ms(80), Some(ms(40))));
        // A quarter more is within what varies, and so is a millisecond.
        assert!(!cubic(ms(50), Some(ms(40))) && !cubic(ms(2), Some(ms(1))) && !cubic(ms(80), None));
    }
}
