//! Link types, tunnels and fragments: what is inside gives the same result as plain Ethernet.

use crate::support;
use crate::support::{FORMAT, client, exchange, frame, pcap, segment};
use fullpipe_experiment::connection::{Capture, Connection};
use fullpipe_trace::wire::Flags;
use fullpipe_trace::{Analyser, Options, PacketCounts, capture_facts, input, text};
use proptest::prelude::*;

const ETHERNET: i32 = 1;
const RAW: i32 = 101;

/// A file of frames with their times in nanoseconds.
fn file(link: i32, frames: &[(u64, Vec<u8>)], snaplen: usize) -> Vec<u8> {
    let mut out = pcap(&[], FORMAT);
    out[20..24].copy_from_slice(&link.to_le_bytes());
    for (ns, bytes) in frames {
        let kept = bytes.len().min(snaplen);
        let words =
            [(ns / 1_000_000_000) as u32, (ns % 1_000_000_000) as u32, kept as u32, bytes.len() as u32];
        out.extend(words.into_iter().flat_map(u32::to_le_bytes));
        out.extend(&bytes[..kept]);
    }
    out
}

struct Found {
    connections: Vec<Connection>,
    packets: PacketCounts,
    facts: Capture,
    heading: String,
}

fn read(bytes: &[u8]) -> Found {
    let mut analyser = Analyser::new(Options::default());
    let outcome = input::read("test", bytes, |f| analyser.add_frame(f)).unwrap();
    let analysis = analyser.finish();
    let (packets, damage) = (analysis.packets, outcome.damage.as_ref());
    Found {
        connections: analysis.connections.into_iter().map(|c| c.record).collect(),
        packets,
        facts: capture_facts("test", &outcome.counters, &packets, damage),
        heading: text::heading("test", &outcome.counters, &packets, damage),
    }
}

fn read_frames(link: i32, frames: &[(u64, Vec<u8>)]) -> Found {
    read(&file(link, frames, 65_535))
}

/// The exchange with each IP packet in what `wrap` makes of it.
fn wrapped(link: i32, wrap: impl Fn(&[u8]) -> Vec<u8>) -> Found {
    let frames = exchange().iter().map(|s| (s.at.as_nanos(), wrap(&frame(s)[14..]))).collect::<Vec<_>>();
    read_frames(link, &frames)
}

fn plain() -> Found {
    wrapped(RAW, <[u8]>::to_vec)
}

fn ethernet(ether_type: u16, payload: &[u8]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..], &ether_type.to_be_bytes(), payload].concat()
}

fn ethernet_ip(packet: &[u8]) -> Vec<u8> {
    ethernet(if packet[0] >> 4 == 6 { 0x86dd } else { 0x0800 }, packet)
}

fn ipv4(protocol: u8, identification: u16, offset: u16, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0x45, 0];
    out.extend((20 + payload.len() as u16).to_be_bytes());
    out.extend([identification.to_be_bytes(), offset.to_be_bytes()].concat());
    out.extend([64, protocol, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
    out.extend(payload);
    out
}

fn outer(protocol: u8, payload: &[u8]) -> Vec<u8> {
    ipv4(protocol, 1, 0x4000, payload)
}

fn ipv6(next_header: u8, payload: &[u8]) -> Vec<u8> {
    ipv6_between([1, 2], next_header, payload)
}

/// An IPv6 packet between addresses with these last bytes.
fn ipv6_between(ends: [u8; 2], next_header: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0x60, 0, 0, 0];
    out.extend((payload.len() as u16).to_be_bytes());
    out.extend([next_header, 64]);
    for last in ends {
        out.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    out.extend(payload);
    out
}

fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let words = [5555, port, 8 + payload.len() as u16, 0];
    [&words.into_iter().flat_map(u16::to_be_bytes).collect::<Vec<_>>()[..], payload].concat()
}

fn snap(packet: &[u8]) -> Vec<u8> {
    [&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0][..], packet].concat()
}

/// An 802.11 data frame with `more` header after the sequence number.
fn dot11(subtype: u8, flags: u8, more: &[u8], body: &[u8]) -> Vec<u8> {
    [&[0x08 | subtype, flags, 0, 0][..], &[2; 18], &[0x30, 1], more, body].concat()
}

fn gre(flags: u16, protocol: u16, fields: usize, payload: &[u8]) -> Vec<u8> {
    [&flags.to_be_bytes()[..], &protocol.to_be_bytes(), &vec![0; 4 * fields], payload].concat()
}

fn vxlan(packet: &[u8]) -> Vec<u8> {
    outer(17, &udp(4789, &[&[8, 0, 0, 0, 0, 0, 1, 0][..], &ethernet_ip(packet)].concat()))
}

fn pktap(packet: &[u8]) -> Vec<u8> {
    let mut out = [108_u32, 1, 1].into_iter().flat_map(u32::to_le_bytes).collect::<Vec<_>>();
    out.resize(108, 0);
    out.extend(ethernet_ip(packet));
    out
}

#[test]
fn every_link_type_gives_the_same_result() {
    let expected = plain();
    assert_eq!(expected.connections[0].to_server.bytes, 10_000);
    type Wrap = fn(&[u8]) -> Vec<u8>;
    let links: [(&str, i32, Wrap); 34] = [
        ("Ethernet", ETHERNET, |p| ethernet(0x0800, p)),
        ("LLC and SNAP", ETHERNET, |p| ethernet(p.len() as u16 + 8, &snap(p))),
        ("PPPoE", ETHERNET, |p| ethernet(0x8864, &[&[0x11, 0, 0, 1, 0, 0, 0, 0x21], p].concat())),
        ("PPPoE, compressed protocol", ETHERNET, |p| {
            ethernet(0x8864, &[&[0x11, 0, 0, 1, 0, 0, 0x21], p].concat())
        }),
        ("VN tag", ETHERNET, |p| ethernet(0x8926, &[&[0, 0, 0, 1, 8, 0], p].concat())),
        ("EDSA", ETHERNET, |p| ethernet(0xdada, &[&[0, 0, 0x40, 0, 0, 0, 8, 0], p].concat())),
        ("SLIP", 8, |p| [&[0; 16], p].concat()),
        ("PPP", 9, |p| [&[0xff, 3, 0, 0x21], p].concat()),
        ("PPP without address", 9, |p| [&[0, 0x21], p].concat()),
        ("PPP, compressed protocol", 9, |p| [&[0x21], p].concat()),
        ("PPP in HDLC", 50, |p| [&[0xff, 3, 0, 0x21], p].concat()),
        ("Cisco's HDLC as PPP", 50, |p| [&[0x0f, 0, 8, 0], p].concat()),
        ("PPPoE session", 51, |p| [&[0x11, 0, 0, 1, 0, 0, 0, 0x21], p].concat()),
        ("pppd", 166, |p| [&[1, 3, 0, 0x21], p].concat()),
        ("PPP with direction", 204, |p| [&[1, 0xff, 3, 0, 0x21], p].concat()),
        ("HDLC", 104, |p| [&[0x0f, 0, 8, 0], p].concat()),
        ("HDLC with direction", 205, |p| [&[1, 0x0f, 0, 8, 0], p].concat()),
        ("frame relay", 107, |p| [&[0x18, 0x41, 3, 0xcc], p].concat()),
        ("frame relay, SNAP", 107, |p| [&[0x18, 0x41, 3, 0, 0x80, 0, 0, 0, 8, 0], p].concat()),
        ("frame relay, Cisco", 206, |p| [&[0, 0x18, 0x41, 8, 0], p].concat()),
        ("802.11", 105, |p| dot11(0, 1, &[], &snap(p))),
        ("802.11 between access points", 105, |p| dot11(0, 3, &[2; 6], &snap(p))),
        ("802.11 with QoS", 105, |p| dot11(0x80, 2, &[0, 0], &snap(p))),
        ("802.11 with QoS and HT control", 105, |p| dot11(0x80, 0x82, &[0; 6], &snap(p))),
        ("radiotap", 127, |p| [&[0, 0, 8, 0, 0, 0, 0, 0][..], &dot11(0, 1, &[], &snap(p))].concat()),
        ("radiotap with time and flags", 127, |p| {
            // Two bitmaps, so that the time is aligned; the flags are a padded header and an FCS.
            let tap = [0, 0, 25, 0, 3, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0x30];
            [&tap[..], &dot11(0x80, 2, &[0, 0, 0, 0], &snap(p)), &[0; 4]].concat()
        }),
        ("Prism", 119, |p| {
            [&[0x44, 0, 0, 0, 144, 0, 0, 0][..], &[0; 136], &dot11(0, 1, &[], &snap(p))].concat()
        }),
        ("PPI", 192, |p| [&[0, 0, 8, 0, 1, 0, 0, 0][..], &ethernet_ip(p)].concat()),
        ("PKTAP", 258, pktap),
        ("PKTAP by its old number", 149, pktap),
        ("NFLOG", 239, |p| {
            let length = (p.len() as u16 + 4).to_le_bytes();
            [&[2, 0, 0, 0, 8, 0, 1, 0, 8, 0, 0, 0][..], &length, &[9, 0], p].concat()
        }),
        ("NFLOG of a big-endian host", 239, |p| {
            let length = (p.len() as u16 + 4).to_be_bytes();
            [&[2, 0, 0, 0, 0, 8, 0, 1, 8, 0, 0, 0][..], &length, &[0, 9], p].concat()
        }),
        ("netANALYZER", 240, |p| [&[0; 4][..], &ethernet_ip(p), &[0; 4]].concat()),
        ("mPackets", 274, |p| [&[0x55; 7][..], &[0xd5], &ethernet_ip(p), &[0; 4]].concat()),
    ];
    for (name, link, wrap) in links {
        let found = wrapped(link, wrap);
        assert_eq!(found.connections, expected.connections, "{name}");
        assert_eq!(found.packets, expected.packets, "{name}");
    }
}

#[test]
fn every_tunnel_gives_the_same_result_and_is_counted() {
    let expected = plain();
    type Wrap = fn(&[u8]) -> Vec<u8>;
    let tunnels: [(&str, &str, Wrap); 29] = [
        ("one label", "MPLS", |p| ethernet(0x8847, &[&[0, 1, 1, 64], p].concat())),
        ("three labels", "MPLS", |p| {
            ethernet(0x8847, &[&[0, 1, 0, 64, 0, 2, 0, 64, 0, 3, 1, 64], p].concat())
        }),
        ("pseudowire", "MPLS", |p| {
            ethernet(0x8847, &[&[0, 1, 1, 64, 0, 0, 0, 0][..], &ethernet_ip(p)].concat())
        }),
        ("pseudowire without control word", "MPLS", |p| {
            ethernet(0x8848, &[&[0, 1, 1, 64][..], &ethernet_ip(p)].concat())
        }),
        ("MPLS in UDP", "MPLS", |p| ethernet_ip(&outer(17, &udp(6635, &[&[0, 1, 1, 64], p].concat())))),
        ("MPLS in IP", "MPLS", |p| ethernet_ip(&outer(137, &[&[0, 1, 1, 64], p].concat()))),
        ("backbone bridge", "802.1ah", |p| ethernet(0x88e7, &[&[0, 0, 0, 1][..], &ethernet_ip(p)].concat())),
        ("4 in 4", "IP in IP", |p| ethernet_ip(&outer(4, p))),
        ("4 in 6", "IP in IP", |p| ethernet_ip(&ipv6(4, p))),
        ("4 in 6 behind options", "IP in IP", |p| {
            ethernet_ip(&ipv6(60, &[&[4, 0, 1, 4, 0, 0, 0, 0], p].concat()))
        }),
        ("with authentication header", "IP in IP", |p| {
            ethernet_ip(&outer(51, &[&[4, 4, 0, 0][..], &[0; 20], p].concat()))
        }),
        ("EtherIP", "EtherIP", |p| ethernet_ip(&outer(97, &[&[0x30, 0][..], &ethernet_ip(p)].concat()))),
        ("GRE", "GRE", |p| ethernet_ip(&outer(47, &gre(0, 0x0800, 0, p)))),
        ("GRE, key", "GRE", |p| ethernet_ip(&outer(47, &gre(0x2000, 0x0800, 1, p)))),
        ("GRE, all fields", "GRE", |p| ethernet_ip(&outer(47, &gre(0xb000, 0x0800, 3, p)))),
        ("GRE, Ethernet", "GRE", |p| ethernet_ip(&outer(47, &gre(0, 0x6558, 0, &ethernet_ip(p))))),
        ("PPTP", "GRE", |p| {
            ethernet_ip(&outer(47, &gre(0x3081, 0x880b, 3, &[&[0xff, 3, 0, 0x21], p].concat())))
        }),
        ("ERSPAN 1", "ERSPAN", |p| ethernet_ip(&outer(47, &gre(0, 0x88be, 0, &ethernet_ip(p))))),
        ("ERSPAN 2", "ERSPAN", |p| {
            ethernet_ip(&outer(47, &gre(0x1000, 0x88be, 1, &[&[0x10; 8][..], &ethernet_ip(p)].concat())))
        }),
        ("ERSPAN 3", "ERSPAN", |p| {
            let own = [&[0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1][..], &[0; 8]].concat();
            ethernet_ip(&outer(47, &gre(0x1000, 0x22eb, 1, &[&own[..], &ethernet_ip(p)].concat())))
        }),
        ("VXLAN", "VXLAN", |p| ethernet_ip(&vxlan(p))),
        ("VXLAN, Linux's port", "VXLAN", |p| {
            let tagged = ethernet(0x8100, &[&[0, 7, 8, 0], p].concat());
            ethernet_ip(&outer(17, &udp(8472, &[&[8, 0, 0, 0, 0, 0, 1, 0][..], &tagged].concat())))
        }),
        ("VXLAN-GPE", "VXLAN", |p| {
            ethernet_ip(&outer(17, &udp(4790, &[&[0x0c, 0, 0, 1, 0, 0, 1, 0], p].concat())))
        }),
        ("Geneve with an option", "Geneve", |p| {
            let header = [1, 0, 0x65, 0x58, 0, 0, 1, 0, 1, 2, 3, 0];
            ethernet_ip(&ipv6(17, &udp(6081, &[&header[..], &ethernet_ip(p)].concat())))
        }),
        ("GTP-U", "GTP-U", |p| {
            ethernet_ip(&outer(17, &udp(2152, &[&[0x30, 255, 0, 0, 0, 0, 0, 1], p].concat())))
        }),
        ("GTP-U with a sequence number", "GTP-U", |p| {
            let header = [0x32, 255, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0x85];
            ethernet_ip(&outer(17, &udp(2152, &[&header, p].concat())))
        }),
        ("GTP-U with two extensions", "GTP-U", |p| {
            let header = [0x34, 255, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 0, 9, 0x40, 1, 0, 0, 0];
            ethernet_ip(&outer(17, &udp(2152, &[&header, p].concat())))
        }),
        ("L2TP with all fields", "L2TP", |p| {
            let header = [0x4a, 2, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 2, 9, 9, 0xff, 3, 0, 0x21];
            ethernet_ip(&outer(17, &udp(1701, &[&header, p].concat())))
        }),
        ("Teredo with an origin", "Teredo", |p| {
            ethernet_ip(&outer(17, &udp(3544, &[&[0; 8][..], &ipv6(4, p)].concat())))
        }),
    ];
    for (name, kind, wrap) in tunnels {
        let found = wrapped(ETHERNET, wrap);
        assert_eq!(found.connections, expected.connections, "{name}");
        assert_eq!((found.packets.tcp, found.packets.other), (23, 0), "{name}");
        let counts: Vec<_> = found.facts.tunnels.iter().map(|t| (t.name.as_str(), t.packets)).collect();
        assert_eq!(counts, [(kind, 23)], "{name}");
        assert!(found.heading.contains(&format!("23 in {kind}")), "{}", found.heading);
    }
}

#[test]
fn tcp_of_other_versions_of_ip_is_read_in_tunnels() {
    let six = |p: &[u8]| ethernet_ip(&outer(41, &ipv6_between([p[15], p[19]], 6, &p[20..])));
    let found = wrapped(ETHERNET, six);
    assert_eq!(found.connections.len(), 1);
    assert_eq!(found.connections[0].to_server.bytes + found.connections[0].to_client.bytes, 10_000);
}

#[test]
fn four_nested_tunnels_are_read_and_more_are_counted() {
    let nested = |n: usize| wrapped(ETHERNET, |p| ethernet_ip(&(0..n).fold(p.to_vec(), |p, _| outer(4, &p))));
    assert_eq!(nested(4).connections, plain().connections);
    let found = nested(5);
    assert!(found.connections.is_empty());
    assert_eq!((found.packets.tcp, found.packets.other), (0, 23));
    assert_eq!(found.facts.unread.len(), 1);
    assert_eq!((found.facts.unread[0].packets, found.facts.unread[0].link_type), (23, None));
    assert!(
        found.heading.contains("Not read: more than four nested tunnels, 23 packets."),
        "{}",
        found.heading
    );
    assert!(found.heading.contains("editcap"), "{}", found.heading);
}

#[test]
fn encrypted_packets_are_counted_with_a_way_out() {
    let dot11 = |p: &[u8]| dot11(0x80, 0x41, &[0, 0, 1, 2, 3, 0x20, 0, 0, 0, 0], p);
    let tap = move |p: &[u8]| [&[0, 0, 8, 0, 0, 0, 0, 0][..], &dot11(p)].concat();
    type Wrap<'a> = &'a dyn Fn(&[u8]) -> Vec<u8>;
    let wraps: [(&str, &str, i32, Wrap); 8] = [
        ("encrypted 802.11", "tcpdump -y", 127, &tap),
        ("ESP", "tcpdump -i", ETHERNET, &|p| ethernet_ip(&outer(50, p))),
        ("ESP", "tcpdump -i", ETHERNET, &|p| ethernet_ip(&outer(17, &udp(4500, p)))),
        ("WireGuard", "tcpdump -i", ETHERNET, &|p| {
            ethernet_ip(&outer(17, &udp(51_820, &[&[4, 0, 0, 0], p].concat())))
        }),
        ("MACsec", "tcpdump -i", ETHERNET, &|p| ethernet(0x88e5, p)),
        ("L2TPv3", "editcap -C", ETHERNET, &|p| ethernet_ip(&outer(115, p))),
        ("compressed, encrypted or multilink PPP", "tcpdump -i", 9, &|p| [&[0xff, 3, 0, 0xfd], p].concat()),
        ("an unsupported link type in PPI or PKTAP", "tcpdump -y", 192, &|p| {
            [&[0, 0, 8, 0, 195, 0, 0, 0], p].concat()
        }),
    ];
    for (name, hint, link, wrap) in wraps {
        let found = wrapped(link, wrap);
        assert_eq!((found.packets.tcp, found.packets.other), (0, 23), "{name}");
        let [unread] = &found.facts.unread[..] else { panic!("{name}: {:?}", found.facts) };
        assert_eq!((unread.name.as_str(), unread.packets), (name, 23));
        assert!(unread.hint.contains(hint), "{unread:?}");
        assert!(found.heading.contains(&format!("Not read: {name}, 23 packets.")), "{}", found.heading);
    }
}

#[test]
fn frames_that_are_no_data_are_other_packets() {
    let beacon = |_: &[u8]| [&[0x80, 0, 0, 0][..], &[2; 30]].concat();
    let null = |p: &[u8]| dot11(0x40, 0x41, &[], p);
    // With a wrong frame check sequence.
    let bad = |p: &[u8]| [&[0, 0, 9, 0, 2, 0, 0, 0, 0x50][..], &dot11(0, 1, &[], &snap(p))].concat();
    for (link, found) in [(105, wrapped(105, beacon)), (105, wrapped(105, null)), (127, wrapped(127, bad))] {
        assert_eq!((found.packets.tcp, found.packets.other), (0, 23), "{link}");
        assert!(found.facts.unread.is_empty());
    }
}

#[test]
fn aggregated_wireless_frames_are_read() {
    let segments = exchange();
    // Two in each frame.
    let frames: Vec<_> = segments
        .chunks(2)
        .map(|pair| {
            let bodies = pair.iter().flat_map(|s| {
                let body = snap(&frame(s)[14..]);
                let mut subframe = [&[2; 12][..], &(body.len() as u16).to_be_bytes(), &body].concat();
                subframe.resize(subframe.len().next_multiple_of(4), 0);
                subframe
            });
            (pair[0].at.as_nanos(), dot11(0x80, 2, &[0x80, 0], &bodies.collect::<Vec<_>>()))
        })
        .collect();
    let found = read_frames(105, &frames);
    assert_eq!(found.packets.tcp, 23);
    assert_eq!(found.connections[0].to_server.bytes, 10_000);
}

#[test]
fn unsupported_links_are_counted_by_name() {
    let plain = pcap(&exchange(), FORMAT);
    // A pcapng file with an interface of USB packets.
    let mut file = support::pcapng(&exchange(), false);
    let at = 28 + 8;
    file[at..at + 2].copy_from_slice(&189_u16.to_le_bytes());
    let found = read(&file);
    let [unread] = &found.facts.unread[..] else { panic!("{:?}", found.facts) };
    assert_eq!(
        (unread.name.as_str(), unread.link_type, unread.packets),
        ("link type USB (189)", Some(189), 12)
    );
    assert_eq!(found.facts.packets, 23);
    assert_eq!(found.facts.dropped, 17);
    assert!(found.heading.contains("Not read: link type USB (189), 12 packets."), "{}", found.heading);
    let mut usb = plain;
    usb[20] = 189;
    let e = input::read("usb.pcap", usb.as_slice(), |_| {}).unwrap_err().to_string();
    assert!(e.contains("usb.pcap: 23 packets with the unsupported link type USB (189)"), "{e}");
    assert!(e.contains("editcap") && e.contains("tcpdump -y"), "{e}");
}

#[test]
fn damage_is_among_the_facts() {
    let whole = pcap(&exchange(), FORMAT);
    let found = read(&whole[..whole.len() - 1]);
    let damage = found.facts.damage.unwrap();
    assert_eq!(damage.offset, whole.len() as u64 - 70);
    assert_eq!((found.facts.packets, found.facts.tcp), (22, 22));
}

#[test]
fn files_of_other_formats_get_a_way_out() {
    for (bytes, hint) in [
        (&b"\xfd7zXZ\0\0\x04 and so on, for some bytes"[..], "xz -dc"),
        (b"BZh91AY&SY and so on, for some more bytes", "bzip2 -dc"),
        (b"\x04\x22\x4d\x18 and so on, for some more bytes", "lz4 -dc"),
        (b"snoop\0\0\0\0\0\0\x02\0\0\0\x04 and so on", "editcap -F pcapng"),
    ] {
        let e = input::read("x", bytes, |_| {}).unwrap_err().to_string();
        assert!(e.contains(hint), "{e}");
    }
}

/// The parts of an IP packet's payload as IPv4 or IPv6 fragments, cut at multiples of eight bytes.
fn fragments(packet: &[u8], identification: u16, cuts: &[usize], six: bool) -> Vec<Vec<u8>> {
    let payload = &packet[20..];
    let mut places = vec![0];
    places.extend(cuts.iter().copied().filter(|cut| *cut < payload.len()));
    places.push(payload.len());
    places
        .windows(2)
        .map(|w| {
            let (part, more) = (&payload[w[0]..w[1]], w[1] < payload.len());
            if six {
                let word = w[0] as u16 | u16::from(more);
                let id = u32::from(identification).to_be_bytes();
                let header = [&[packet[9], 0][..], &word.to_be_bytes(), &id].concat();
                ipv6_between([packet[15], packet[19]], 44, &[&header, part].concat())
            } else {
                let mut part =
                    ipv4(packet[9], identification, (w[0] as u16 / 8) | (u16::from(more) << 13), part);
                part[12..20].copy_from_slice(&packet[12..20]);
                part
            }
        })
        .collect()
}

/// The exchange in fragments, in the order that `order` makes.
fn fragmented(cuts: &[usize], six: bool, snaplen: usize, order: impl Fn(&mut Vec<Vec<u8>>)) -> Found {
    let mut frames = Vec::new();
    for (i, s) in exchange().iter().enumerate() {
        let mut parts = fragments(&frame(s)[14..], i as u16, cuts, six);
        order(&mut parts);
        frames.extend(parts.into_iter().map(|part| (s.at.as_nanos(), part)));
    }
    read(&file(RAW, &frames, snaplen))
}

#[test]
fn fragments_are_reassembled_in_any_order() {
    let expected = plain();
    let cuts = [8, 24, 512, 1000];
    for snaplen in [65_535, 80] {
        let in_order = fragmented(&cuts, false, snaplen, |_| {});
        assert_eq!(in_order.connections, expected.connections);
        // Of 13 packets without payload 2 more each, of 10 with payload 4.
        assert_eq!((in_order.packets.tcp, in_order.packets.reassembled), (23, 13 + 10 * 4));
        assert!(in_order.heading.contains("53 reassembled fragments"), "{}", in_order.heading);
        let reversed = fragmented(&cuts, false, snaplen, |parts| parts.reverse());
        assert_eq!(reversed.connections, expected.connections);
        let shuffled = fragmented(&cuts, false, snaplen, |parts| {
            let n = parts.len();
            parts.swap(0, n / 2);
        });
        assert_eq!(shuffled.connections, expected.connections);
        let doubled = fragmented(&cuts, false, snaplen, |parts| {
            let last = parts.pop().unwrap();
            *parts = parts.iter().flat_map(|p| [p.clone(), p.clone()]).collect();
            parts.push(last);
        });
        assert_eq!(doubled.connections, expected.connections);
    }
    let six = fragmented(&[512], true, 65_535, |_| {});
    assert_eq!((six.packets.tcp, six.packets.reassembled, six.packets.fragments), (23, 10, 0));
    assert_eq!(six.connections.len(), 1);
    assert_eq!(six.connections[0].retransmissions_total(), 0);
}

trait Total {
    fn retransmissions_total(&self) -> u64;
}

impl Total for Connection {
    fn retransmissions_total(&self) -> u64 {
        self.to_server.retransmissions.segments + self.to_client.retransmissions.segments
    }
}

#[test]
fn fragments_of_a_tunnel_are_reassembled() {
    let mut frames = Vec::new();
    for (i, s) in exchange().iter().enumerate() {
        for part in fragments(&vxlan(&frame(s)[14..]), i as u16, &[32, 512], false) {
            frames.push((s.at.as_nanos(), ethernet_ip(&part)));
        }
    }
    let found = read_frames(ETHERNET, &frames);
    assert_eq!(found.connections, plain().connections);
    assert_eq!(found.facts.tunnels[0].name, "VXLAN");
}

#[test]
fn mark_of_any_fragment_counts() {
    let parsed = |mark: u8| {
        let mut analyser = Analyser::new(Options::default());
        let mut frames = Vec::new();
        for (i, s) in exchange().iter().enumerate() {
            let mut parts = fragments(&frame(s)[14..], i as u16, &[512], false);
            let n = parts.len();
            parts[n - 1][1] = mark;
            frames.extend(parts.into_iter().map(|part| (s.at.as_nanos(), part)));
        }
        let bytes = file(RAW, &frames, 65_535);
        input::read("test", bytes.as_slice(), |f| analyser.add_frame(f)).unwrap();
        analyser.finish().connections.remove(0).record.to_server
    };
    assert_ne!(parsed(3), parsed(0));
}

#[test]
fn overlapping_fragments_make_no_packet() {
    let s = segment(0.0, client(), Flags::ACK, 1, 1, 1000);
    let packet = frame(&s)[14..].to_vec();
    let part = |from: usize, to: usize, more: bool| {
        let mut out = ipv4(6, 5, (from as u16 / 8) | (u16::from(more) << 13), &packet[20 + from..20 + to]);
        out[12..20].copy_from_slice(&packet[12..20]);
        out
    };
    let end = packet.len() - 20;
    for parts in [
        // An overlap, one that rewrites the header, data after the end, two ends, and no multiple of eight.
        vec![part(0, 512, true), part(504, 800, true), part(800, end, false)],
        vec![part(8, 512, true), part(0, 16, true), part(512, end, false)],
        vec![part(0, 512, true), part(800, end, false), part(512, 800, false)],
        vec![part(512, end, false), part(512, 800, false), part(0, 512, true)],
        vec![part(0, 509, true), part(504, end, false)],
        vec![part(0, 504, true), part(512, end, false), part(504, 520, true)],
    ] {
        let n = parts.len() as u64;
        let frames: Vec<_> = parts.into_iter().map(|part| (1, part)).collect();
        let found = read_frames(RAW, &frames);
        assert_eq!((found.packets.tcp, found.packets.fragments), (0, n));
        assert!(found.heading.contains(&format!("{n} fragments of incomplete packets")), "{}", found.heading);
    }
    // A fragment with another header inside what is there is ignored.
    let mut forged = part(0, 512, true);
    forged[20] = 99;
    let frames = [part(0, 512, true), forged, part(512, end, false)].map(|part| (1, part));
    let found = read_frames(RAW, &frames);
    assert_eq!((found.packets.tcp, found.connections[0].client), (1, s.from));
}

#[test]
fn fragments_are_awaited_for_thirty_seconds() {
    let s = segment(0.0, client(), Flags::ACK, 1, 1, 1000);
    let parts = fragments(&frame(&s)[14..], 7, &[512], false);
    for (seconds, tcp) in [(29, 1), (31, 0)] {
        let frames = [(1, parts[0].clone()), (seconds * 1_000_000_000, parts[1].clone())];
        let found = read_frames(RAW, &frames);
        assert_eq!((found.packets.tcp, found.packets.fragments), (tcp, 2 * (1 - tcp)), "{seconds}");
    }
}

#[test]
fn fragments_of_other_protocols_count_as_before() {
    let packet = outer(17, &udp(53, &[7; 1000]));
    let frames: Vec<_> = fragments(&packet, 3, &[512], false).into_iter().map(|part| (1, part)).collect();
    let found = read_frames(RAW, &frames);
    assert_eq!((found.packets.other, found.packets.reassembled, found.packets.fragments), (2, 0, 0));
    let found = read_frames(RAW, &frames[..1]);
    assert_eq!((found.packets.other, found.packets.fragments), (1, 0));
}

#[test]
fn headers_beyond_the_snap_length_in_a_tunnel_are_truncated() {
    let frames: Vec<_> =
        exchange().iter().map(|s| (s.at.as_nanos(), ethernet_ip(&vxlan(&frame(s)[14..])))).collect();
    // 14 + 20 + 8 + 8 + 14 + 20 before TCP.
    assert_eq!(read(&file(ETHERNET, &frames, 104)).connections, plain().connections);
    assert_eq!(read(&file(ETHERNET, &frames, 100)).packets.short, 23);
}

/// Any of the wrappings, by number.
fn wrap_any(kind: u8, p: &[u8]) -> Vec<u8> {
    match kind % 16 {
        0 => ethernet_ip(&outer(4, p)),
        1 => outer(4, p),
        2 => outer(41, p),
        3 => ipv6(4, p),
        4 => ipv6(44, &[&[4, 0, 0, 1, 0, 0, 0, 7], p].concat()),
        5 => outer(47, &gre(0xb000, 0x0800, 3, p)),
        6 => outer(47, &gre(0, 0x6558, 0, &ethernet_ip(p))),
        7 => vxlan(p),
        8 => outer(17, &udp(2152, &[&[0x34, 255, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 0, 9, 0], p].concat())),
        9 => outer(17, &udp(6081, &[&[0, 0, 8, 0, 0, 0, 1, 0], p].concat())),
        10 => outer(47, &gre(0, 0x8847, 0, &[&[0, 1, 0, 64, 0, 2, 1, 64], p].concat())),
        11 => outer(17, &udp(1701, &[&[0, 2, 0, 1, 0, 1, 0xff, 3, 0, 0x21], p].concat())),
        12 => outer(17, &udp(3544, &ipv6(4, p))),
        13 => outer(51, &[&[4, 4, 0, 0][..], &[0; 20], p].concat()),
        14 => ipv4(4, 9, 0x2000, p),
        _ => ipv4(17, 9, 1, p),
    }
}

const LINKS: [i32; 24] = [
    0, 1, 8, 9, 50, 51, 101, 104, 105, 107, 113, 119, 127, 149, 166, 192, 204, 205, 206, 219, 239, 240, 258,
    276,
];

proptest! {
    #[test]
    fn arbitrary_frames_are_counted_once(
        link in prop::sample::select(LINKS.to_vec()),
        frames in prop::collection::vec(
            (
                prop::collection::vec(any::<u8>(), 0..120),
                prop::collection::vec(any::<u8>(), 0..7),
                any::<bool>(),
            ),
            1..12,
        ),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let s = segment(0.0, client(), Flags::ACK, 1, 1, 10);
        let mut all = Vec::new();
        for (i, (random, kinds, is_tcp)) in frames.iter().enumerate() {
            let inner = if *is_tcp { frame(&s)[14..].to_vec() } else { random.clone() };
            let mut bytes = kinds.iter().fold(inner, |p, kind| {
                if p.len() < 2 { p } else { wrap_any(*kind, &p) }
            });
            for (place, value) in damage.iter().filter(|_| !bytes.is_empty()).collect::<Vec<_>>() {
                let at = place.index(bytes.len());
                bytes[at] = *value;
            }
            all.push((i as u64, bytes));
        }
        let found = read_frames(link, &all);
        let p = found.packets;
        let counted = p.tcp + p.other + p.fragments + p.reassembled + p.short;
        // The frames of an aggregate are several.
        if ![105, 119, 127, 192].contains(&link) {
            prop_assert_eq!(counted, all.len() as u64);
        }
    }
}
