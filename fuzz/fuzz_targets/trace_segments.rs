//! The TCP machine: segments of one connection, each made of eighteen of the input's bytes.
#![no_main]

use fullpipe_trace::wire::{Ecn, Flags, Identity, Segment, TcpOptions};
use fullpipe_trace::{Analyser, Options};
use fullpipe_units::{Span, Time};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let ends = ["10.0.0.1:40000".parse().unwrap(), "10.0.0.2:443".parse().unwrap()];
    let mut now = Time::from_nanos(1 << 60);
    let mut analyser = Analyser::new(Options::default());
    for step in bytes.chunks_exact(18) {
        let word = |i: usize| u32::from_le_bytes([step[i], step[i + 1], step[i + 2], step[i + 3]]);
        // Mostly within milliseconds: seconds make series that take longer to write than all else here.
        let unit = [100, 100, 1000, 10_000][usize::from(step[2] >> 6)];
        now += Span::from_nanos(u64::from(u16::from_le_bytes([step[0], step[1]])) * unit);
        let way = usize::from(step[2] & 1);
        let sack = [&[5, 10][..], &step[10..18]].concat();
        let timestamps = (step[2] & 2 != 0).then(|| (word(10), word(14)));
        let options = if step[2] & 4 != 0 { TcpOptions::parse(&sack) } else { TcpOptions::default() };
        analyser.add_segment(&Segment {
            at: now,
            from: ends[way],
            to: ends[1 - way],
            // Small numbers, and those on both sides of the wrap.
            seq: (word(4) >> 8).wrapping_sub(1 << 20),
            ack: (word(6) >> 8).wrapping_sub(1 << 20),
            flags: Flags(step[3]),
            window: u16::from_le_bytes([step[8], step[9]]),
            // A single byte is a probe of a closed window or a keep-alive.
            payload: if step[5] == 255 { 1 } else { u32::from(step[5]) * 16 },
            headers: 40,
            options: TcpOptions { timestamps, ..options },
            ecn: Ecn::NotCapable,
            // Few identifications, so that some packets are captured twice.
            identity: Identity { id: u16::from(step[2] >> 3 & 7), ttl: 64 - (step[3] >> 7) },
        });
    }
    analyser.finish();
});
