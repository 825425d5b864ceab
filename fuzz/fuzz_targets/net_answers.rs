//! What a server can answer to `get`: heads, parts, and bodies of every framing.
#![no_main]

use fullpipe_net::get::response::{Body, read_head};
use fullpipe_net::http::{Framing, ResponseHead};
use libfuzzer_sys::fuzz_target;
use std::io::{self, Read};
use std::time::{Duration, Instant};

/// A server whose whole response is given in pieces.
struct Response<'a>(&'a [u8], usize);

impl Read for Response<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = self.0.len().min(self.1).min(into.len());
        into[..n].copy_from_slice(&self.0[..n]);
        self.0 = &self.0[n..];
        Ok(n)
    }
}

fn fetch(response: &[u8], step: usize) -> Option<(ResponseHead, Vec<u8>, bool)> {
    let mut channel = Response(response, step);
    let (head, rest) = read_head(&mut channel, Instant::now() + Duration::from_secs(3600)).ok()?;
    let mut body = Vec::new();
    let whole = Body::new(channel, rest, &head).ok()?.read_to_end(&mut body).is_ok();
    Some((head, body, whole))
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&kind, response)) = bytes.split_first() else { return };
    let Some((head, body, whole)) = fetch(response, usize::from(kind) + 1) else { return };
    assert!(body.len() <= response.len());
    if let (true, Ok(Framing::Length(n))) = (whole, head.framing()) {
        assert_eq!(body.len() as u64, n);
    }
    if let Ok(Some(range)) = head.content_range()
        && let Some((first, last)) = range.part
    {
        assert!(first <= last && range.complete.is_none_or(|n| last < n));
    }
    if whole {
        assert_eq!(
            fetch(response, response.len().max(1)),
            Some((head, body, whole)),
            "in whatever pieces it comes"
        );
    }
});
