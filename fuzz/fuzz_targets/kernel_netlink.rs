//! Netlink messages about links, queueing disciplines, routes, sockets and offloads, and what
//! sockets say of themselves.
#![no_main]

use fullpipe_kernel::netlink::{Attributes, Messages};
use fullpipe_kernel::sock_diag::SocketView;
use fullpipe_kernel::tcp_info::{CcInfo, TcpInfo};
use fullpipe_kernel::{ethtool, facts, rtnetlink};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for body in Messages(bytes).map(|m| m.body).chain([bytes]) {
        if let Some((_, node)) = rtnetlink::parse_qdisc(body) {
            assert!(rtnetlink::unhex(&node.options).is_some());
        }
        let _ = (rtnetlink::parse_route(body), rtnetlink::parse_link(body), ethtool::parse_features(body));
        if let Some(view) = SocketView::new(body) {
            let _ = (view.decode(), view.mark(), view.interface());
        }
        if let Some(info) = TcpInfo::decode(body) {
            let _ = (info.cwnd_bytes(), info.inflight(), info.in_slow_start());
        }
        let _ = ["bbr", "dctcp", "vegas"].map(|name| CcInfo::decode(name, body));
    }
    assert!(Attributes(bytes).count() <= bytes.len());
    let _ = facts::Config::parse("config", bytes);
});
