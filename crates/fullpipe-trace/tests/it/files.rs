//! Capture files in all formats, intact and damaged.

use crate::support::{Clock, FORMAT, PacketBlock, PcapFormat, exchange, pcap, pcapng, pcapng_with};
use fullpipe_experiment::connection::Connection;
use fullpipe_trace::input::{self, Outcome};
use fullpipe_trace::{Analyser, Options, TraceError};
use proptest::prelude::*;
use std::io::Write;

fn read(bytes: &[u8]) -> (Outcome, Vec<Connection>) {
    let mut analyser = Analyser::new(Options::default());
    let outcome = input::read("test", bytes, |f| analyser.add_frame(f)).unwrap();
    (outcome, analyser.finish().connections.into_iter().map(|c| c.record).collect())
}

#[test]
fn every_file_format_gives_the_same_result() {
    let segments = exchange();
    let (outcome, expected) = read(&pcap(&segments, FORMAT));
    assert_eq!(outcome.damage, None);
    assert_eq!(expected[0].to_server.bytes, 10_000);
    for big_endian in [false, true] {
        for nanoseconds in [false, true] {
            // Truncated packets count with the length in the IP header.
            for snaplen in [65_535, 68] {
                let format = PcapFormat { big_endian, nanoseconds, snaplen };
                assert_eq!(read(&pcap(&segments, format)).1, expected);
            }
        }
        let (outcome, found) = read(&pcapng(&segments, big_endian));
        assert_eq!(outcome.damage, None);
        assert_eq!(found, expected);
        assert_eq!(outcome.counters.dropped, 17);
    }
}

/// Bits 28 to 31 give the length of a frame check sequence in units of 16 bits, and bit 26 that it
/// is known.
#[test]
fn link_type_with_the_length_of_a_frame_check_sequence_is_read() {
    let segments = exchange();
    let expected = read(&pcap(&segments, FORMAT)).1;
    for big_endian in [false, true] {
        for nanoseconds in [false, true] {
            let mut file = pcap(&segments, PcapFormat { big_endian, nanoseconds, ..FORMAT });
            let field = 0x2400_0001_u32;
            file[20..24].copy_from_slice(&if big_endian { field.to_be_bytes() } else { field.to_le_bytes() });
            assert_eq!(read(&file).1, expected);
        }
    }
}

#[test]
fn clocks_of_interfaces_are_read() {
    let segments = exchange();
    let expected = read(&pcap(&segments, FORMAT)).1;
    for big_endian in [false, true] {
        // 2^20, 2^30 and 10^9 ticks per second; an offset of 1000 s.
        for (resolution, ticks_per_s, offset_s) in
            [(0x94, 1 << 20, 0), (0x9e, 1 << 30, 0), (9, 1_000_000_000, 1000_u64), (0x9e, 1 << 30, 1000)]
        {
            let clock = Clock { resolution, ticks_per_s, offset_s };
            let found = read(&pcapng_with(&segments, big_endian, clock, PacketBlock::Enhanced)).1;
            let [found, expected] = [&found[0], &expected[0]];
            assert!((found.start_s - expected.start_s - offset_s as f64).abs() < 1e-3, "{resolution}");
            let error = found.duration.as_secs_f64() / expected.duration.as_secs_f64() - 1.0;
            assert!(error.abs() < 1e-3, "resolution {resolution:#x}: {error}");
        }
    }
}

#[test]
fn obsolete_packet_blocks_are_read() {
    let segments = exchange();
    let expected = read(&pcap(&segments, FORMAT)).1;
    for big_endian in [false, true] {
        let mut file = pcapng_with(&segments, big_endian, Clock::NANOSECONDS, PacketBlock::Obsolete);
        assert_eq!(read(&file).1, expected);
        // Of the last block: the captured length.
        let at = file.len() - 4 - 56 - 8;
        file[at..at + 4].fill(0x7f);
        let (outcome, _) = read(&file);
        assert_eq!((outcome.counters.damaged_blocks, outcome.damage), (1, None));
    }
}

#[test]
fn compressed_files_are_recognised_by_their_content() {
    let plain = pcap(&exchange(), FORMAT);
    let expected = read(&plain).1;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&plain).unwrap();
    assert_eq!(read(&gzip.finish().unwrap()).1, expected);
    let zstd =
        ruzstd::encoding::compress_to_vec(plain.as_slice(), ruzstd::encoding::CompressionLevel::Fastest);
    assert_eq!(read(&zstd).1, expected);
}

#[test]
fn truncated_file_gives_its_beginning_and_the_position() {
    let whole = pcap(&exchange(), FORMAT);
    let (outcome, _) = read(&whole);
    // The last frame is an ACK: 16 bytes of record header and 54 of frame.
    let (broken, found) = read(&whole[..whole.len() - 1]);
    assert_eq!(broken.counters.frames, outcome.counters.frames - 1);
    let damage = broken.damage.unwrap();
    assert_eq!(damage.offset, whole.len() as u64 - 70);
    assert!(damage.reason.contains("69 bytes"), "{damage:?}");
    assert_eq!(found[0].to_server.bytes, 10_000);
}

#[test]
fn truncated_compressed_file_gives_its_beginning() {
    // A file larger than the read buffer, and one that fits into it.
    for (repeats, frames) in [(200, 1000), (4, 30)] {
        let plain = pcap(&exchange().repeat(repeats), FORMAT);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
        gzip.write_all(&plain).unwrap();
        let mut packed = gzip.finish().unwrap();
        packed.truncate(packed.len() / 2);
        let (outcome, found) = read(&packed);
        let damage = outcome.damage.unwrap();
        assert!(damage.reason.contains("decompressed"), "{damage:?}");
        assert!(outcome.counters.frames > frames && !found.is_empty(), "{:?}", outcome.counters);
    }
}

#[test]
fn damaged_block_is_skipped() {
    let mut file = pcapng(&exchange(), false);
    // The block of the first packet follows the section block (28) and the interface blocks (20 and
    // 32). Make its captured length exceed the block.
    file[80 + 20..80 + 24].copy_from_slice(&60_000_u32.to_le_bytes());
    let (outcome, found) = read(&file);
    assert_eq!(outcome.damage, None);
    assert_eq!(found[0].to_server.bytes, 10_000);
}

#[test]
fn too_short_block_ends_the_file() {
    for big_endian in [false, true] {
        let whole = pcapng(&exchange(), big_endian);
        // A process information block shorter than its own header.
        for length in 0..12_u32 {
            let words = [0x8000_0001, length, 7];
            let word = |w: u32| if big_endian { w.to_be_bytes() } else { w.to_le_bytes() };
            let block: Vec<u8> = words.into_iter().flat_map(word).collect();
            let (outcome, found) = read(&[&whole[..], &block, &block].concat());
            let damage = outcome.damage.unwrap();
            assert_eq!(damage.offset, whole.len() as u64, "{length}");
            assert!(damage.reason.contains("not a packet"), "{damage:?}");
            assert_eq!(found[0].to_server.bytes, 10_000);
        }
    }
}

#[test]
fn other_files_are_rejected() {
    for bytes in [&b""[..], b"GET / HTTP/1.1\r\n\r\n and more of that kind of text", &[0; 100]] {
        let e = input::read("notes.txt", bytes, |_| {}).unwrap_err();
        assert!(matches!(e, TraceError::NotACapture { .. }), "{e}");
        assert!(e.to_string().contains("notes.txt"), "{e}");
    }
    let mut usb = pcap(&exchange(), FORMAT);
    usb[20] = 189;
    let e = input::read("usb.pcap", usb.as_slice(), |_| {}).unwrap_err();
    assert!(e.to_string().contains("link type USB (189)"), "{e}");
}

fn seeds() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(pcap(&exchange(), FORMAT)),
        Just(pcapng(&exchange(), false)),
        Just(pcapng(&exchange(), true)),
    ]
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let mut analyser = Analyser::new(Options::default());
        let _ = input::read("x", bytes.as_slice(), |f| analyser.add_frame(f));
        analyser.finish();
    }

    #[test]
    fn damaged_files_do_not_panic_or_hang(
        mut file in seeds(),
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        cut in any::<prop::sample::Index>(),
    ) {
        for (place, value) in damage {
            let i = place.index(file.len());
            file[i] = value;
        }
        file.truncate(cut.index(file.len()).max(24));
        let mut analyser = Analyser::new(Options::default());
        let _ = input::read("x", file.as_slice(), |f| analyser.add_frame(f));
        analyser.finish();
    }
}
