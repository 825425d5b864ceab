//! A file in mahimahi's format: refused with a reason, or played in the order of time.
#![no_main]

use fullpipe_path::{BuildContext, Direction, LinkSpec, Outcome, Packet, Path, Trace, TraceSpec};
use fullpipe_units::{Span, Time};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(trace) = Trace::parse(text) else { return };
    trace.check().expect("what was read is sound");
    let link = LinkSpec { trace: Some(TraceSpec::Inline(trace)), ..LinkSpec::default() };
    let ctx = BuildContext::for_path(std::slice::from_ref(&link), &[], Direction::Forward, 1500, 1);
    let mut path = Path::new(&[link], &ctx).expect("a sound trace makes a link");
    let mut latest = Time::ZERO;
    for i in 0..64u64 {
        let at = Time::ZERO + Span::from_millis(i * i * 7);
        path.push(at, Packet::new(0, 1 + (i as u32 * 977) % 9000, i));
        path.advance(at, &mut |at, outcome| {
            assert!(at >= latest);
            if let Outcome::Delivered(_) = outcome {
                assert_eq!(at.as_nanos() % 1_000_000, 0, "opportunities are whole milliseconds");
            }
            latest = at;
        });
    }
});
