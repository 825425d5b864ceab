//! Netlink messages about queueing disciplines, routes, sockets and offloads.
#![no_main]

use fullpipe_host::net;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some((_, node)) = net::parse_qdisc(bytes) {
        assert!(net::unhex(&node.options).is_some());
    }
    let _ = net::parse_route(bytes);
    let _ = net::parse_socket(bytes);
    let _ = net::parse_features(bytes);
    assert!(net::Attributes(bytes).count() <= bytes.len());
});
