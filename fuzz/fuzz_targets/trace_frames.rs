//! Frames of one link type: tunnels, fragments and radio headers. The first byte selects the link
//! type; each frame has its length in two bytes, of which the upper bits are the time to the next.
#![no_main]

use fullpipe_trace::input::Frame;
use fullpipe_trace::wire::Link;
use fullpipe_trace::{Analyser, Options};
use fullpipe_units::{Span, Time};
use libfuzzer_sys::fuzz_target;

const LINKS: [i32; 25] = [
    1, 0, 8, 9, 50, 51, 101, 104, 105, 107, 113, 119, 127, 149, 166, 192, 204, 205, 206, 219, 239, 240, 258,
    274, 276,
];

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, mut rest)) = bytes.split_first() else { return };
    let Some(link) = Link::from_linktype(LINKS[usize::from(*kind) % LINKS.len()]) else { return };
    let mut now = Time::from_nanos(1 << 60);
    let mut analyser = Analyser::new(Options::default());
    let mut frames = 0;
    while let Some((head, after)) = rest.split_first_chunk::<2>() {
        let [low, high] = *head;
        let length = usize::from(u16::from_le_bytes([low, high & 7])).min(after.len());
        now += Span::from_millis(u64::from(high >> 3) * 500);
        let (bytes, next) = after.split_at(length);
        analyser.add_frame(&Frame { at: now, link, length: length as u32, bytes });
        frames += 1;
        rest = next;
    }
    let p = analyser.finish().packets;
    // An aggregate has several packets.
    assert!(p.tcp + p.other + p.fragments + p.reassembled + p.short >= frames);
});
