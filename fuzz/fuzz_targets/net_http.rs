//! What strangers send to the server's HTTP side: heads, and bodies in chunks.
#![no_main]

use fullpipe_net::http::{Chunked, Framing, MessageError, RequestHead, Step};
use fullpipe_net::printable;
use libfuzzer_sys::fuzz_target;

/// Reads a body that comes in pieces of `step` bytes; gives its length and what is left after it.
fn read(bytes: &[u8], step: usize, max: u64) -> Result<Option<(u64, usize)>, MessageError> {
    let mut chunked = Chunked::new(max);
    let (mut at, mut come, mut length) = (0, 0, 0_u64);
    loop {
        match chunked.next(&bytes[at..come])? {
            Step::Framing(n) => {
                assert!(n > 0 && n <= come - at, "it passes over bytes that are there");
                at += n;
            }
            Step::Data(n) => {
                let n = (come - at).min(usize::try_from(n).unwrap_or(usize::MAX));
                at += n;
                chunked.consume(n as u64);
                length += n as u64;
                assert!(length <= max);
                if n == 0 {
                    if come == bytes.len() {
                        return Ok(None);
                    }
                    come = (come + step).min(bytes.len());
                }
            }
            Step::NeedMore if come == bytes.len() => return Ok(None),
            Step::NeedMore => come = (come + step).min(bytes.len()),
            Step::Done => return Ok(Some((length, bytes.len() - at))),
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&kind, rest)) = bytes.split_first() else { return };
    if kind < 128 {
        let max = u64::from(kind) * 64;
        let whole = read(rest, rest.len().max(1), max);
        assert_eq!(read(rest, usize::from(kind % 16) + 1, max), whole, "in whatever pieces it comes");
        return;
    }
    match RequestHead::parse(rest) {
        Ok(Some((request, length))) => {
            let head = &rest[..length];
            assert!(head.ends_with(b"\r\n\r\n"));
            if matches!(request.method.as_str(), "GET" | "HEAD") {
                assert_eq!(request.framing, Framing::Length(0), "nothing of it can be the next request");
            }
            if let Some(host) = &request.host
                && fullpipe_kernel::local_name::is_local(host)
            {
                let name = host.strip_prefix('[').map_or_else(
                    || host.rsplit_once(':').map_or(host.as_str(), |(name, _)| name),
                    |rest| rest.split_once(']').expect("a bracket").0,
                );
                let name = name.trim_end_matches('.').to_ascii_lowercase();
                let is_address = name.parse::<std::net::IpAddr>().is_ok();
                let is_named = name == "localhost" || name.ends_with(".localhost");
                let is_own = || {
                    let own = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
                    own.trim().eq_ignore_ascii_case(&name)
                };
                assert!(is_address || is_named || is_own(), "{host}");
            }
            // The same head means the same whatever follows it.
            let longer = [head, b"GET /next HTTP/1.1\r\n\r\n"].concat();
            assert_eq!(RequestHead::parse(&longer), Ok(Some((request, length))));
        }
        Ok(None) => {}
        Err(e) => assert!(!printable::line(&e.to_string()).contains(char::is_control)),
    }
});
