//! Captures that are made to exhaust the memory or the time of their reader. Memory and operations
//! are bounded, not time: tests run on busy machines.

use crate::support::*;
use fullpipe_experiment::connection::Point;
use fullpipe_testing::{CountingAllocator, MemoryUse, alone};
use fullpipe_trace::wire::{Flags, Segment, TcpOptions};
use fullpipe_trace::{Analyser, Analysis, Options, input};
use fullpipe_units::{Span, Time};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Analyses `segments`; returns the result and the peak of its memory in MiB.
fn analysed(segments: impl Iterator<Item = Segment>) -> (Analysis, usize) {
    let memory = MemoryUse::start();
    let mut analyser = Analyser::new(Options::default());
    segments.for_each(|s| analyser.add_segment(&s));
    let analysis = analyser.finish();
    (analysis, memory.peak_mib())
}

/// The `n`th client of a flood.
fn source(n: u32) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::from(0x0b00_0000 + n), 40_000))
}

/// SYNs from `count` addresses, one each microsecond.
fn syns(count: u32) -> impl Iterator<Item = Segment> {
    (0..count).map(|n| {
        let syn = segment(f64::from(n) * 1e-3, client(), Flags::SYN, n, 0, 0);
        Segment { from: source(n), to: server(), ..syn }
    })
}

/// Connections of one byte from `count` addresses: the handshake, `bytes(n)`, and both FINs if they
/// are `closed`.
fn transfers(count: u32, bytes: fn(u32) -> u32, closed: bool) -> impl Iterator<Item = Segment> {
    let (syn, ack, fin) = (Flags::SYN, Flags::ACK, Flags::FIN | Flags::ACK);
    (0..count).flat_map(move |n| {
        let (up, down) = (client(), server());
        let end = 1 + bytes(n);
        let packets = [
            (up, syn, 0, 0, 0),
            (down, syn | ack, 0, 1, 0),
            (up, ack | Flags::PSH, 1, 1, bytes(n)),
            (down, ack, 1, end, 0),
            (up, fin, end, 1, 0),
            (down, fin, 1, end + 1, 0),
            (up, ack, end + 1, 2, 0),
        ];
        let packets = packets.into_iter().enumerate().take(if closed { 7 } else { 4 });
        packets.map(move |(i, (from, flags, seq, ack, payload))| {
            let ms = f64::from(n) * 0.01 + i as f64 * 0.001;
            let s = segment(ms, from, flags, seq, ack, payload);
            if from == up {
                Segment { from: source(n), to: down, ..s }
            } else {
                Segment { from: down, to: source(n), ..s }
            }
        })
    })
}

#[test]
fn memory_of_a_flood_of_connections_is_bounded_and_the_rest_is_counted() {
    let _alone = alone();
    let count = 150_000;
    let listed = (Analyser::MAX_LISTED + Analyser::MAX_EMPTY) as u64;
    let (analysis, mib) = analysed(syns(count));
    assert_eq!(analysis.connections.len(), Analyser::MAX_EMPTY);
    assert_eq!(analysis.packets.unlisted_connections, u64::from(count) - listed / 2);
    println!("SYNs: {mib} MiB");
    assert!(mib < 300, "{mib} MiB");
    for closed in [true, false] {
        let (analysis, mib) = analysed(transfers(count, |_| 1, closed));
        assert_eq!(analysis.connections.len(), Analyser::MAX_LISTED);
        assert_eq!(analysis.packets.unlisted_connections, u64::from(count) - listed / 2);
        // Of equal ones the first.
        assert_eq!(analysis.connections.last().unwrap().record.number, Analyser::MAX_LISTED as u32);
        println!("transfers: {mib} MiB");
        assert!(mib < 300, "{mib} MiB");
    }
}

#[test]
fn connections_with_most_data_are_listed() {
    let _alone = alone();
    let count = 30_000;
    let (analysis, _) =
        analysed(transfers(count, |n| 1 + n / 2 % 1000 + u32::from(n == 29_999) * 50_000, true));
    assert_eq!(analysis.connections.len(), Analyser::MAX_LISTED);
    assert!(analysis.connections.is_sorted_by_key(|c| c.record.number));
    let bytes = |c: &fullpipe_trace::TracedConnection| c.record.to_server.bytes;
    assert_eq!(bytes(analysis.connections.last().unwrap()), 51_000);
    let mut all: Vec<u64> = (0..count).map(|n| u64::from(1 + n / 2 % 1000)).collect();
    all.sort_unstable();
    let least = analysis.connections.iter().map(bytes).min().unwrap();
    assert!(least >= all[count as usize - Analyser::MAX_LISTED] - 1, "{least}");
}

#[test]
fn connection_of_an_honest_client_survives_a_flood() {
    let _alone = alone();
    let mut t = Exchange::new(7, 9);
    t.open(0.0, 40.0, 0.125);
    t.data(50.0, 0, 1000);
    t.ack(90.0, 1000);
    t.data(1900.0, 1000, 3000);
    let mut all: Vec<Segment> = t.segments.iter().copied().chain(transfers(100_000, |_| 1, true)).collect();
    all.sort_by_key(|s| s.at);
    let (analysis, _) = analysed(all.into_iter());
    // Those that are closed are evicted first.
    let first = &analysis.connections[0].record;
    assert_eq!((first.client, first.to_server.bytes), (client(), 3000));
}

#[test]
fn connection_without_acknowledgments_takes_bounded_memory() {
    let _alone = alone();
    // Each packet leaves a gap, and half of them fill one.
    let scattered = (0..3_000_000_u32).map(|n| {
        let seq = if n % 2 == 0 { 4 * n } else { 4 * (n / 2) + 2 };
        segment(f64::from(n) * 1e-3, client(), Flags::ACK, seq, 1, 1)
    });
    let (analysis, mib) = analysed(scattered);
    assert_eq!(analysis.connections.len(), 1);
    println!("{mib} MiB");
    assert!(mib < 300, "{mib} MiB");
}

#[test]
fn endless_times_do_not_overflow() {
    let _alone = alone();
    let mut s = Vec::new();
    for n in 0..4000 {
        s.push(Segment { at: Time::ZERO, ..segment(0.0, client(), Flags::ACK, n * 1000, 1, 1000) });
    }
    for n in 1..=4000 {
        s.push(Segment { at: Time::NEVER, ..segment(0.0, server(), Flags::ACK, 1, n * 1000, 0) });
    }
    let mut analyser = Analyser::new(Options { at: Some(Point::Client), ..Options::default() });
    s.iter().for_each(|s| analyser.add_segment(s));
    let mut found = analyser.finish().connections.remove(0);
    assert_eq!(found.record.to_server.rtt.max, Some(Span::MAX));
    found.identify();
}

#[test]
fn packets_longer_than_any_offload_are_malformed() {
    let _alone = alone();
    for (length, is_short) in [(600_000_u32, false), (1 << 31, true)] {
        let mut bytes = frame(&segment(0.0, client(), Flags::ACK, 1, 1, 0));
        // No length in the header: that of the capture counts.
        bytes[16..18].fill(0);
        let link = fullpipe_trace::wire::Link::Ethernet;
        let frame = input::Frame { at: Time::ZERO, link, length, bytes: &bytes };
        let mut analyser = Analyser::new(Options::default());
        analyser.add_frame(&frame);
        assert_eq!(analyser.finish().packets.short, u64::from(is_short), "{length}");
    }
}

#[test]
fn number_of_interfaces_is_bounded() {
    let _alone = alone();
    let first = pcapng(&[], false);
    // The section header, and the interfaces of the file.
    let mut file = first[..28].to_vec();
    let interface = &first[28..48];
    (0..300_000).for_each(|_| file.extend(interface));
    let memory = MemoryUse::start();
    let outcome = input::read("x", file.as_slice(), |_| {}).unwrap();
    assert_eq!(outcome.counters.damaged_blocks, 300_000 - 65_536);
    let mib = memory.peak_mib();
    assert!(mib < 10, "{mib} MiB");
}

#[test]
fn memory_of_fragments_without_others_is_bounded() {
    let _alone = alone();
    let packet = &frame(&segment(0.0, client(), Flags::ACK, 1, 1, 1000))[14..];
    let count = 300_000_u32;
    let memory = MemoryUse::start();
    let mut analyser = Analyser::new(Options::default());
    for n in 0..count {
        // Separate ranges of very many packets, none of which is complete.
        let mut part = packet[..20 + 8].to_vec();
        let offset = 0x2000 | (2 * (n % 70)) as u16;
        part[2..4].copy_from_slice(&28_u16.to_be_bytes());
        part[4..6].copy_from_slice(&((n / 70) as u16).to_be_bytes());
        part[6..8].copy_from_slice(&offset.to_be_bytes());
        let at = Time::from_nanos(u64::from(n));
        let link = fullpipe_trace::wire::Link::Raw;
        analyser.add_frame(&input::Frame { at, link, length: 28, bytes: &part });
    }
    let mib = memory.peak_mib();
    assert_eq!(analyser.finish().packets.fragments, u64::from(count));
    assert!(mib < 4, "{mib} MiB");
}

/// Writes a capture file of the headers of `segments`.
fn write(path: &Path, segments: impl Iterator<Item = Segment>) {
    let mut out = BufWriter::new(File::create(path).unwrap());
    let format = PcapFormat { big_endian: false, nanoseconds: true, snaplen: 66 };
    out.write_all(&pcap(&[], format)).unwrap();
    for s in segments {
        out.write_all(&pcap(&[s], format)[24..]).unwrap();
    }
    out.flush().unwrap();
}

/// Writes the captures of `docs/evidence/trace.md`: a million SYNs, a million connections of a
/// byte, and packets that each made a walk over all data in flight.
///
/// `CAPTURES=DIR cargo test -p fullpipe-trace --test it -- --ignored write_hostile_captures`
#[test]
#[ignore = "writes gigabytes"]
fn write_hostile_captures() {
    let directory = std::env::var_os("CAPTURES").expect("CAPTURES: a directory");
    let directory = Path::new(&directory);
    write(&directory.join("syns.pcap"), syns(1_000_000));
    write(&directory.join("transfers.pcap"), transfers(1_000_000, |_| 1, true));
    write(&directory.join("open-transfers.pcap"), transfers(1_000_000, |_| 1, false));
    // Data in flight with gaps, which is then filled from the middle.
    let gaps = (0..500_000_u32).map(|n| segment(f64::from(n) * 1e-3, client(), Flags::ACK, 4 * n, 1, 1));
    let filled = (0..500_000_u32).map(|n| {
        let at = 500.0 + f64::from(n) * 1e-3;
        let middle = 1_000_002;
        let seq = if n % 2 == 0 { middle + 2 * n } else { middle - 2 * (n + 1) };
        segment(at, client(), Flags::ACK, seq, 1, 1)
    });
    write(&directory.join("gaps.pcap"), gaps.chain(filled));
    // Retransmissions of a merged packet, each of very many ranges.
    let ranges = (0..30_000_u32).map(|n| segment(f64::from(n) * 1e-3, client(), Flags::ACK, 2 * n, 1, 1));
    let again = (0..100_000_u32).map(|n| {
        let (at, seq) = (30.0 + f64::from(n) * 1e-3, n % 2);
        segment(at, client(), Flags::ACK, seq, 1, 60_000)
    });
    write(&directory.join("retransmissions.pcap"), ranges.chain(again));
    // SACK blocks in turn, so that none is in the last option.
    let data =
        (0..300_000_u32).map(|n| segment(f64::from(n) * 1e-3, client(), Flags::ACK, 1000 * n, 1, 1000));
    let sacks = (0..700_000_u32).map(|n| {
        let block = if n % 2 == 0 { [1000_u32, 299_000_000] } else { [299_500_000, 299_600_000] };
        let option = [&[5, 10][..], &block[0].to_be_bytes(), &block[1].to_be_bytes()].concat();
        let options = TcpOptions::parse(&option);
        Segment { options, ..segment(300.0 + f64::from(n) * 1e-3, server(), Flags::ACK, 1, 0, 0) }
    });
    write(&directory.join("sacks.pcap"), data.chain(sacks));
}
