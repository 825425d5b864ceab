//! A link as a scenario file writes it: whatever is written, it is refused with a reason, or it
//! reads back as it was and carries packets without losing count.
#![no_main]

use fullpipe_path::{BuildContext, Direction, LinkSpec, Packet, Path};
use fullpipe_units::{Span, Time};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(link) = toml::from_str::<LinkSpec>(text) else { return };
    let links = [link];
    let ctx = BuildContext::for_path(&links, &[], Direction::Forward, 1500, 1);
    let Ok(mut path) = Path::new(&links, &ctx) else { return };
    let json = serde_json::to_string(&links[0]).expect("a link can be written");
    let _ = serde_json::from_str::<LinkSpec>(&json);
    let mut fates = 0u64;
    for i in 0..64u64 {
        let at = Time::ZERO + Span::from_millis(i * i);
        path.push(at, Packet::new((i % 3) as u32, 1 + (i as u32 * 977) % 3000, i));
        path.advance(at, &mut |_, _| fates += 1);
        assert!(path.next_event() > at);
    }
    path.advance(Time::ZERO + Span::from_secs(20), &mut |_, _| fates += 1);
    let inside: u64 = path.stats().map(|stats| stats.inside_packets()).sum();
    assert_eq!(fates + inside, 64);
});
