//! `fullpipe trace` of small files: what it reports of the file itself.

mod program;

use program::fullpipe;
use serde_json::Value;
use std::path::Path;
use std::process::Output;

/// A pcapng file: a TCP segment in VXLAN, an ESP packet, a UDP packet, and a USB packet.
fn file() -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| {
        let length = 12 + body.len().next_multiple_of(4);
        let mut out = [kind.to_le_bytes(), (length as u32).to_le_bytes()].concat();
        out.extend(body);
        out.resize(length - 4, 0);
        out.extend((length as u32).to_le_bytes());
        out
    };
    let ipv4 = |protocol: u8, payload: &[u8]| {
        let length = (20 + payload.len() as u16).to_be_bytes();
        let ends = [64, protocol, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
        [&[0x45, 0][..], &length, &[0, 1, 0x40, 0], &ends, payload].concat()
    };
    let ethernet = |packet: &[u8]| [&[0; 12][..], &[8, 0], packet].concat();
    let udp = |port: u16, payload: &[u8]| [&[0, 9][..], &port.to_be_bytes(), &[0, 0, 0, 0], payload].concat();
    let segment =
        [&[0x0f, 0xa0, 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 16, 0, 99, 0, 0, 0, 0][..], &[7; 100]].concat();
    let vxlan = [&[8, 0, 0, 0, 0, 0, 1, 0][..], &ethernet(&ipv4(6, &segment))].concat();
    let packets = [
        (0_u32, ethernet(&ipv4(17, &udp(4789, &vxlan)))),
        (0, ethernet(&ipv4(50, &[1; 40]))),
        (0, ethernet(&ipv4(17, &udp(53, &[1; 40])))),
        (1, vec![0; 64]),
    ];
    let section = [0x1a2b_3c4d_u32, 1, u32::MAX, u32::MAX];
    let mut out = block(0x0a0d_0d0a, &section.map(u32::to_le_bytes).concat());
    for link in [1_u32, 189] {
        out.extend(block(1, &[link, 0].map(u32::to_le_bytes).concat()));
    }
    for (interface, frame) in packets {
        let length = frame.len() as u32;
        let head = [interface, 0, 1000, length, length];
        out.extend(block(6, &[&head.map(u32::to_le_bytes).concat()[..], &frame].concat()));
    }
    out
}

fn trace(path: &Path, args: &[&str]) -> Output {
    fullpipe().arg("trace").arg(path).args(args).output().unwrap()
}

#[test]
fn facts_of_the_file_are_in_text_and_json() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mixed.pcapng");
    let whole = file();
    // The last block is damaged.
    std::fs::write(&path, [&whole[..], &[6, 0, 0, 0, 60, 0, 0, 0]].concat()).unwrap();
    let printed = String::from_utf8(trace(&path, &[]).stdout).unwrap();
    let printed = printed.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "4 packets, 1 of TCP, 2 of other protocols, 1 with unsupported link types",
        "TCP packets in tunnels: 1 in VXLAN.",
        "Not read: link type USB (189), 1 packet.",
        "Not read: ESP, 1 packet.",
        "The file is damaged at byte",
    ] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    let json: Value = serde_json::from_slice(&trace(&path, &["--json"]).stdout).unwrap();
    let facts = &json["captures"][0];
    assert_eq!(facts["name"], path.display().to_string());
    for (field, n) in [("packets", 4), ("tcp", 1), ("other", 2)] {
        assert_eq!(facts[field], n, "{field}: {facts}");
    }
    assert_eq!(facts["tunnels"], serde_json::json!([{"name": "VXLAN", "packets": 1}]));
    assert_eq!(facts["unread"][0]["link_type"], 189);
    assert_eq!((&facts["unread"][1]["name"], &facts["unread"][1]["packets"]), (&"ESP".into(), &1.into()));
    assert!(facts["unread"][1]["hint"].as_str().unwrap().contains("tcpdump"), "{facts}");
    assert_eq!(facts["damage"]["offset"], whole.len() as u64);
    assert_eq!(json["connections"].as_array().unwrap().len(), 1);
}

#[test]
fn file_of_unsupported_links_only_is_refused_with_a_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("usb.pcap");
    let mut bytes = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 189].map(u32::to_le_bytes).concat();
    bytes.extend([1_u32, 0, 4, 4, 7].map(u32::to_le_bytes).concat());
    std::fs::write(&path, bytes).unwrap();
    let refused = trace(&path, &["--json"]);
    let printed = String::from_utf8(refused.stderr).unwrap();
    let printed = printed.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(!refused.status.success());
    assert!(printed.contains("1 packet with the unsupported link type USB (189)"), "{printed}");
    assert!(printed.contains("tcpdump -y NAME") && printed.contains("editcap -C"), "{printed}");
}
