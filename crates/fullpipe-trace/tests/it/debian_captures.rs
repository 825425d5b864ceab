//! The captures in Debian packages, read by fullpipe and by tshark.
//!
//! `./x test` fetches them and tshark, without installing either (`scripts/debian-captures`): the
//! test captures in the sources of nDPI, tcpdump, tcpflow and Wireshark, and those in the packages
//! python3-dpkt, pcapfix and golang-github-google-gopacket-dev. What is compared is said at
//! [`Figures`]; each difference is listed in [`KNOWN`] with its reason, for the versions in Debian
//! 12.

use fullpipe_trace::{Analyser, Options, input};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Sender and receiver.
type Direction = (SocketAddr, SocketAddr);

/// What is compared for each direction between two addresses, over all connections between them.
#[derive(Clone, Copy, Default)]
struct Figures {
    /// Packets, copies included.
    packets: u64,
    /// Payload bytes, retransmissions included.
    bytes: u64,
    /// Payload bytes, each counted once.
    unique: u64,
    /// Retransmitted segments.
    retransmitted: u64,
    /// Segments that arrived out of order. tshark takes the 3 ms or the RTT after later data for the
    /// limit between both, fullpipe timestamps and its own RTT: so the sum is compared, and the
    /// retransmissions with this number as the tolerance.
    reordered: u64,
    /// Packets that the capture wrote out of order; they may have payload or none.
    misordered: u64,
}

impl Figures {
    /// Names and values of the figures that differ from tshark's.
    fn differences(&self, tshark: &Figures) -> Vec<(Figure, u64, u64)> {
        let late = tshark.retransmitted + tshark.reordered;
        let least = self.retransmitted + self.reordered;
        let our_late = late.clamp(least, least + self.misordered);
        let tolerated = self.retransmitted.abs_diff(tshark.retransmitted) <= tshark.reordered;
        let retransmitted =
            if tolerated || our_late != late { tshark.retransmitted } else { self.retransmitted };
        let figures = [
            (Packets, self.packets, tshark.packets),
            (Bytes, self.bytes, tshark.bytes),
            (Unique, self.unique, tshark.unique),
            (Late, our_late, late),
            (Retransmitted, retransmitted, tshark.retransmitted),
        ];
        figures.into_iter().filter(|(_, ours, theirs)| ours != theirs).collect()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Figure {
    Packets,
    Bytes,
    Unique,
    /// Retransmitted or out of order.
    Late,
    /// Where there are as many of `Late`.
    Retransmitted,
}
use Figure::{Bytes, Late, Packets, Retransmitted, Unique};

/// A reason for differences, and in each capture the figures that differ: fullpipe's value and
/// tshark's, both summed over the directions that differ.
type Known = (&'static str, &'static [(&'static str, &'static [(Figure, u64, u64)])]);
const KNOWN: &[Known] = &[
    (
        "Packets that were captured twice, which tshark calls retransmitted",
        &[
            ("ndpi/1kxun.pcap", &[(Bytes, 8947, 17912), (Late, 1, 26)]),
            ("ndpi/aimini-http.pcap", &[(Bytes, 39565, 79130), (Late, 0, 35)]),
            ("ndpi/dnp3.pcap", &[(Bytes, 2596, 7788), (Late, 0, 190)]),
            ("ndpi/ftp-start-tls.pcap", &[(Bytes, 2003, 3834), (Late, 0, 13)]),
            ("ndpi/pps.pcap", &[(Bytes, 7909, 10429), (Late, 0, 2)]),
            ("ndpi/rtsp.pcap", &[(Bytes, 16849, 67396), (Late, 0, 213)]),
            ("ndpi/whois.pcapng", &[(Bytes, 170, 340), (Late, 0, 1)]),
            ("tcpdump/bgp-infinite-loop.pcap", &[(Bytes, 34, 68), (Late, 0, 1)]),
            ("tcpdump/bgp-shutdown-communication.pcapng", &[(Bytes, 74, 148), (Late, 0, 1)]),
            ("tcpdump/pptp.pcap", &[(Bytes, 188, 376), (Late, 0, 2)]),
            ("wireshark/http-ooo.pcap", &[(Bytes, 287, 289), (Late, 4, 5)]),
            ("wireshark/http-ooo2.pcap", &[(Bytes, 44, 120)]),
        ],
    ),
    (
        "Damaged on purpose: lengths in IP headers beyond their frames, and TCP headers beyond their packets",
        &[
            ("ndpi/fuzz-2006-06-26-2594.pcap", &[(Bytes, 33603, 66), (Unique, 33603, 66), (Late, 3, 4)]),
            (
                "ndpi/fuzz-2006-09-29-28586.pcap",
                &[(Packets, 7, 9), (Bytes, 9547, 1460), (Unique, 9547, 2117)],
            ),
            ("ndpi/ip_fragmented_garbage.pcap", &[(Bytes, 0, 14940), (Unique, 0, 14940)]),
            (
                "ndpi/ndpi_match_string_subprotocol__error.pcapng",
                &[(Bytes, 3696, 1648), (Unique, 3696, 1648), (Retransmitted, 0, 1)],
            ),
            ("ndpi/reasm_crash_anon.pcapng", &[(Bytes, 79014, 6343), (Unique, 32704, 6064), (Late, 83, 64)]),
            ("ndpi/tls_invalid_reads.pcap", &[(Bytes, 5425, 1329), (Unique, 4096, 1329), (Late, 2, 0)]),
            ("tcpdump/bgp-addpath.pcap", &[(Bytes, 269, 231), (Unique, 269, 231)]),
            ("tcpdump/bgp-as-path-oobr.pcap", &[(Late, 2, 1)]),
            ("tcpdump/bgp-bgp_capabilities_print-oobr-1.pcap", &[(Packets, 0, 1)]),
            ("tcpdump/bgp-bgp_capabilities_print-oobr-2.pcap", &[(Packets, 0, 1)]),
            ("tcpdump/bgp_pmsi_tunnel-oobr.pcap", &[(Packets, 0, 1)]),
            ("tcpdump/kday4.pcap", &[(Bytes, 1462, 1041), (Unique, 768, 0), (Late, 1, 2)]),
            ("tcpdump/kday7.pcap", &[(Bytes, 1462, 1041), (Unique, 768, 0), (Late, 1, 2)]),
            ("tcpdump/rpki-rtr-oobr.pcap", &[(Packets, 0, 1)]),
        ],
    ),
    (
        "Data that only an ACK or a FIN without data overtook: fullpipe does not see that it is late",
        &[
            ("ndpi/capture.pcap", &[(Late, 23, 27)]),
            ("ndpi/skype.pcap", &[(Late, 0, 11)]),
            ("ndpi/skype_no_unknown.pcap", &[(Late, 0, 9)]),
            ("ndpi/tor.pcap", &[(Late, 1, 2)]),
        ],
    ),
    (
        "A second SYN-ACK with another number, after which tshark calls all data retransmitted",
        &[("ndpi/KakaoTalk_chat.pcap", &[(Late, 0, 8)]), ("ndpi/KakaoTalk_talk.pcap", &[(Late, 0, 1)])],
    ),
    (
        "Packets of several segments: fullpipe counts segments, tshark packets",
        &[
            ("ndpi/tumblr.pcap", &[(Late, 755, 749)]),
            ("ndpi/weibo.pcap", &[(Late, 12, 11)]),
            ("wireshark/http2_follow_multistream.pcapng", &[(Late, 82, 36)]),
        ],
    ),
    (
        "fullpipe adds the retransmissions that were lost before they were captured",
        &[("ndpi/ookla.pcap", &[(Late, 53, 38)])],
    ),
    (
        "At the sender, data that the capture missed when it was first sent",
        &[("ndpi/bitcoin.pcap", &[(Late, 1, 4)]), ("ndpi/whatsappfiles.pcap", &[(Late, 22, 24)])],
    ),
    (
        "A packet of repeated and new bytes, of which fullpipe counts the first",
        &[("wireshark/retrans-tls.pcap", &[(Late, 1, 0)])],
    ),
    (
        "Without a SYN, fullpipe takes data before the first captured for a retransmission of earlier data",
        &[
            ("tcpflow/test1-out-of-order.pcap", &[(Unique, 65, 1461)]),
            ("tcpflow/test1-part2.pcap", &[(Unique, 87, 1483)]),
            ("tcpflow/test5-lines-randomized.pcap", &[(Unique, 0, 2004)]),
            ("tcpflow/test5-lines-randomized2.pcap", &[(Unique, 424, 2004)]),
        ],
    ),
    (
        "Cisco FabricPath, which fullpipe does not read",
        &[("ndpi/ajp.pcap", &[(Packets, 13, 25), (Bytes, 1297, 2943), (Late, 0, 4)])],
    ),
    (
        "WireGuard, which tshark decrypts with the keys in the capture",
        &[("wireshark/wireguard-ping-tcp-dsb.pcapng", &[(Packets, 0, 5), (Bytes, 0, 216), (Unique, 0, 216)])],
    ),
];

/// Captures with TCP of which fullpipe says that it does not support the link type or the format.
const UNSUPPORTED: [&str; 4] = [
    "pcapfix/test_without_pcap_header.pcap",
    "tcpdump/bgp-aigp.pcap",
    "tcpdump/ipoib.pcap",
    "tcpdump/kday6.pcap",
];

/// The whole corpus has at least as many captures with TCP, and packets in them.
const MIN_CAPTURES: usize = 300;
const MIN_PACKETS: u64 = 170_000;

/// What `./x test` unpacked.
fn tools() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools")
}

/// The files in the folders of `folder`, and their names with the folder's.
fn captures(folder: &Path) -> Vec<(String, PathBuf)> {
    let entries =
        |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.strip_prefix(folder).unwrap().to_string_lossy().into_owned();
    let mut found: Vec<_> = entries(folder).flat_map(|package| entries(&package)).collect();
    found.sort();
    found.into_iter().map(|file| (name(&file), file)).collect()
}

/// fullpipe's figures of a capture, or why it cannot be read.
fn analyse(file: &Path) -> Result<BTreeMap<Direction, Figures>, String> {
    let mut analyser = Analyser::new(Options::default());
    input::read("capture", File::open(file).unwrap(), |frame| analyser.add_frame(frame))
        .map_err(|e| e.to_string())?;
    let mut found = BTreeMap::<Direction, Figures>::new();
    for c in analyser.finish().connections.iter().map(|c| &c.record) {
        for (ends, d) in [((c.client, c.server), &c.to_server), ((c.server, c.client), &c.to_client)] {
            let figures = found.entry(ends).or_default();
            figures.packets += d.packets + d.duplicate_packets;
            figures.bytes += d.bytes_sent;
            figures.unique += d.bytes;
            figures.retransmitted += d.retransmissions.segments;
            figures.reordered += d.reordering.segments;
            figures.misordered += d.misordered_packets;
        }
    }
    found.retain(|_, figures| figures.packets > 0);
    Ok(found)
}

/// Fields of each frame. The request must be shorter than 2 kB, the line buffer of sharkd.
const FIELDS: [&str; 13] = [
    "tcp.stream",
    "frame.protocols",
    "ip.src",
    "ip.dst",
    "ipv6.src",
    "ipv6.dst",
    "tcp.srcport",
    "tcp.dstport",
    "tcp.hdr_len",
    "tcp.len",
    "tcp.seq_raw",
    "tcp.analysis.retransmission",
    "tcp.analysis.out_of_order",
];

/// The analyses of tshark's engine for all captures. sharkd is tshark as a server: one process reads
/// all captures, where starting tshark for each would take minutes. It writes no answer before
/// it has read all requests.
fn tshark_frames(sharkd: &Path, captures: &[(String, PathBuf)]) -> Vec<Option<Value>> {
    let mut lines = tempfile::tempfile().unwrap();
    let columns =
        FIELDS.iter().enumerate().map(|(i, field)| (format!("column{i}"), json!(format!("{field}:0"))));
    let columns: serde_json::Map<_, _> = columns.collect();
    for (i, (_, file)) in captures.iter().enumerate() {
        let load = json!({ "jsonrpc": "2.0", "id": 2 * i, "method": "load", "params": { "file": file } });
        let frames = json!({ "jsonrpc": "2.0", "id": 2 * i + 1, "method": "frames", "params": columns });
        writeln!(lines, "{load}\n{frames}").unwrap();
    }
    lines.rewind().unwrap();
    let mut command = Command::new(sharkd);
    if sharkd.starts_with(tools()) {
        let libraries = tools().join("usr/lib").join(format!("{}-linux-gnu", std::env::consts::ARCH));
        command.env("LD_LIBRARY_PATH", libraries);
        command.env("WIRESHARK_DATA_DIR", tools().join("usr/share/wireshark"));
    }
    let mut sharkd =
        command.arg("-").stdin(lines).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut answers = vec![None; captures.len()];
    for line in BufReader::new(sharkd.stdout.take().unwrap()).lines() {
        let mut answer: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let id = answer["id"].as_u64().unwrap() as usize;
        // A capture that cannot be loaded has no frames.
        if id % 2 == 1 && answer["result"].is_array() {
            answers[id / 2] = Some(answer["result"].take());
        }
    }
    assert!(sharkd.wait().unwrap().success());
    answers
}

/// tshark's figures of a capture.
fn summarise(frames: &Value) -> BTreeMap<Direction, Figures> {
    let mut found = BTreeMap::<Direction, Figures>::new();
    let mut data = BTreeMap::<(Direction, &str), Vec<(u64, u64)>>::new();
    for frame in frames.as_array().unwrap() {
        let values: Vec<&str> = frame["c"].as_array().unwrap().iter().map(|v| v.as_str().unwrap()).collect();
        let field = |name: &str| values[FIELDS.iter().position(|field| *field == name).unwrap()];
        // Of several, such as those of tunnels, separated by commas.
        let nth = |name: &str, n: usize| field(name).split(',').nth(n).unwrap_or_default();
        let number = |name: &str| nth(name, 0).parse::<u64>().unwrap_or(0);
        let outer: Vec<&str> = field("frame.protocols").split(':').take_while(|p| *p != "tcp").collect();
        // No packets: the headers that an ICMP error quotes, and what is shorter than a header.
        if field("tcp.stream").is_empty()
            || outer.iter().any(|p| p.starts_with("icmp"))
            || number("tcp.hdr_len") < 20
        {
            continue;
        }
        let is_ip = |protocol: &str| protocol == "ip" || protocol == "ipv6";
        let Some(ip) = outer.iter().rfind(|p| is_ip(p)) else { continue };
        let depth = outer.iter().filter(|p| *p == ip).count() - 1;
        let end = |address: &str, port: &str| {
            let address: IpAddr = nth(&format!("{ip}.{address}"), depth).parse().unwrap();
            SocketAddr::new(address, number(port) as u16)
        };
        let direction = (end("src", "tcp.srcport"), end("dst", "tcp.dstport"));
        let figures = found.entry(direction).or_default();
        figures.packets += 1;
        let (length, seq) = (number("tcp.len"), number("tcp.seq_raw"));
        if length > 0 {
            figures.bytes += length;
            figures.retransmitted += u64::from(!field("tcp.analysis.retransmission").is_empty());
            figures.reordered += u64::from(!field("tcp.analysis.out_of_order").is_empty());
            data.entry((direction, nth("tcp.stream", 0))).or_default().push((seq, seq + length));
        }
    }
    for ((direction, _), mut ranges) in data {
        ranges.sort_unstable();
        let mut end = 0;
        for (from, to) in ranges {
            found.get_mut(&direction).unwrap().unique += to.saturating_sub(from.max(end));
            end = end.max(to);
        }
    }
    found
}

/// The figures that differ between both analyses of a capture, each summed over the directions in
/// which it differs. Adds a line to `details` for each of them.
fn compare(
    ours: &BTreeMap<Direction, Figures>,
    theirs: &BTreeMap<Direction, Figures>,
    details: &mut Vec<String>,
) -> BTreeMap<Figure, (u64, u64)> {
    let mut differences = BTreeMap::<Figure, (u64, u64)>::new();
    let directions: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
    for direction in directions {
        let of = |figures: &BTreeMap<Direction, Figures>| figures.get(direction).copied().unwrap_or_default();
        let found = of(ours).differences(&of(theirs));
        for &(figure, a, b) in &found {
            let sum = differences.entry(figure).or_default();
            *sum = (sum.0 + a, sum.1 + b);
        }
        if !found.is_empty() {
            details.push(format!("  {} → {}: {found:?}", direction.0, direction.1));
        }
    }
    differences
}

/// sharkd: installed, or unpacked by `./x test`.
fn sharkd() -> Option<PathBuf> {
    let unpacked = tools().join("usr/bin/sharkd");
    [unpacked, PathBuf::from("/usr/bin/sharkd")].into_iter().find(|path| path.is_file())
}

#[test]
fn debian_captures_have_the_packets_bytes_and_retransmissions_of_tshark() {
    let folder = tools().join("captures");
    if let Ok(why) = std::fs::read_to_string(folder.join("not-compared")) {
        // `./x test` says so: what the packages' servers lack is not a failure.
        print!("{why}");
        return;
    }
    let (Some(sharkd), true) = (sharkd(), folder.join("versions").is_file()) else {
        println!("SKIPPED: the captures in Debian packages are not in target/tools: scripts/debian-captures");
        return;
    };
    let captures = captures(&folder);
    let frames = std::thread::scope(|scope| {
        let frames = scope.spawn(|| tshark_frames(&sharkd, &captures));
        let analyses: Vec<_> = captures.iter().map(|(_, file)| analyse(file)).collect();
        frames.join().unwrap().into_iter().zip(analyses).collect::<Vec<_>>()
    });
    let (mut failures, mut unsupported) = (Vec::new(), BTreeSet::new());
    let (mut count, mut directions, mut equal) = (0, 0, 0);
    let mut sums = [Figures::default(); 2];
    for ((name, _), (frames, analysis)) in captures.iter().zip(frames) {
        let Some(theirs) = frames.as_ref().map(summarise).filter(|directions| !directions.is_empty()) else {
            continue;
        };
        let Ok(ours) = analysis else {
            unsupported.insert(name.as_str());
            continue;
        };
        count += 1;
        directions += theirs.len();
        for (sum, figures) in sums.iter_mut().zip([&ours, &theirs]) {
            for f in figures.values() {
                sum.packets += f.packets;
                sum.bytes += f.bytes;
                sum.unique += f.unique;
                sum.retransmitted += f.retransmitted;
                sum.reordered += f.reordered;
            }
        }
        let mut details = Vec::new();
        let found = compare(&ours, &theirs, &mut details);
        let known = KNOWN.iter().flat_map(|(_, captures)| *captures).filter(|(of, _)| of == name);
        let known: BTreeMap<_, _> =
            known.flat_map(|(_, figures)| *figures).map(|&(figure, a, b)| (figure, (a, b))).collect();
        equal += theirs.len() - details.len();
        if found != known {
            failures.push(format!("{name}: {found:?}, known {known:?}\n{}", details.join("\n")));
        }
    }
    println!("{count} captures with TCP, {directions} directions, {equal} of them equal");
    for (reader, f) in ["fullpipe", "tshark"].into_iter().zip(&sums) {
        println!(
            "{reader}: {} packets, {} bytes, {} of them once, {} segments retransmitted, {} reordered",
            f.packets, f.bytes, f.unique, f.retransmitted, f.reordered
        );
    }
    assert!(
        failures.is_empty(),
        "{} captures differ from tshark's figures, or otherwise than listed:\n{}",
        failures.len(),
        failures.join("\n")
    );
    assert_eq!(unsupported, BTreeSet::from(UNSUPPORTED), "captures with TCP that fullpipe cannot read");
    assert!(count >= MIN_CAPTURES && sums[1].packets >= MIN_PACKETS, "captures are missing");
}
