//! What strangers say to the measuring server and client.
#![no_main]

use fullpipe_net::get::{address, file_name};
use fullpipe_net::iperf3::extension::{Hello, Proof, Report};
use fullpipe_net::iperf3::{COOKIE_LEN, Cookie, Params, Results, ServerError, State, UdpHeader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&kind, rest)) = bytes.split_first() else { return };
    match kind % 7 {
        0 => {
            if let Ok(params) = Params::parse(rest) {
                // What was accepted is within bounds, and is understood when said again.
                assert!(params.streams() <= 256 && params.parallel >= 1);
                let again = Params::parse(params.to_json().to_string().as_bytes()).expect("our own words");
                assert_eq!(again.byte_budget(), params.byte_budget());
            }
        }
        1 => {
            if let Ok(results) = Results::parse(rest) {
                Results::parse(results.to_json().to_string().as_bytes()).expect("our own words");
            }
        }
        2 => {
            if let Some(Ok(cookie)) =
                rest.get(..COOKIE_LEN).and_then(|b| b.try_into().ok()).map(Cookie::parse)
            {
                assert_eq!(cookie.to_string().len(), COOKIE_LEN - 1);
            }
        }
        3 => {
            let _ = (UdpHeader::parse(rest, true), UdpHeader::parse(rest, false), UdpHeader::is_hello(rest));
        }
        4 => {
            if let Ok(text) = std::str::from_utf8(rest)
                && let Ok(url) = address(text)
            {
                assert!(!file_name(&url).is_some_and(|name| name.contains('/') || name == ".."));
                assert_eq!(address(url.as_str()), Ok(url));
            }
        }
        5 => {
            let _ = (
                serde_json::from_slice::<Report>(rest),
                serde_json::from_slice::<Hello>(rest),
                serde_json::from_slice::<Proof>(rest),
            );
        }
        _ => {
            if let Some(eight) = rest.get(..8).and_then(|b| b.try_into().ok()) {
                let _ = ServerError::parse(eight).explain();
            }
            let _ = rest.first().map(|&b| State::parse(b));
        }
    }
});
