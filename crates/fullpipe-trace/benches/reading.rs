//! Reading speed of captures: a bulk download of a million segments, headers only. Summary, and
//! with time series and all packets for plots; compared with `tcptrace` and `tshark` on the same
//! file, if installed.
//!
//! Prints packets per second of processor time. `cargo bench -p fullpipe-trace`.

use fullpipe_trace::{Analyser, Options, input};
use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Segments of the download; every second one is acknowledged.
const SEGMENTS: u32 = 1_000_000;
/// Payload of each.
const MSS: u32 = 1448;
/// Segments in flight.
const FLIGHT: u32 = 100;
/// One in this many segments is lost and retransmitted a round trip later.
const LOSS_INTERVAL: u32 = 1000;

/// Writes packet headers: Ethernet, IPv4, TCP with timestamps and at most one SACK block.
struct Writer<W: Write> {
    out: W,
    packets: u64,
}

impl<W: Write> Writer<W> {
    fn new(mut out: W) -> std::io::Result<Self> {
        // libpcap's header: microseconds, version 2.4, Ethernet.
        out.write_all(&0xa1b2_c3d4_u32.to_le_bytes())?;
        out.write_all(&[2, 0, 4, 0])?;
        out.write_all(&[0; 8])?;
        out.write_all(&65_535_u32.to_le_bytes())?;
        out.write_all(&1_u32.to_le_bytes())?;
        Ok(Writer { out, packets: 0 })
    }

    /// A packet at `at` µs, from the server if `down`.
    fn packet(
        &mut self,
        at: u64,
        down: bool,
        numbers: (u32, u32),
        flags: u8,
        payload: u32,
        sack: Option<(u32, u32)>,
    ) -> std::io::Result<()> {
        self.packets += 1;
        let mut options = vec![1, 1, 8, 10];
        let stamp = (at / 1000) as u32;
        options.extend(stamp.to_be_bytes());
        options.extend((stamp.saturating_sub(20)).to_be_bytes());
        if let Some((from, to)) = sack {
            options.extend([1, 1, 5, 10]);
            options.extend(from.to_be_bytes());
            options.extend(to.to_be_bytes());
        }
        if flags & 2 != 0 {
            options.extend([2, 4, 5, 0xb4, 4, 2, 3, 3, 7, 1, 1, 1]);
        }
        let tcp = 20 + options.len();
        let captured = 14 + 20 + tcp as u32;
        self.out.write_all(&((at / 1_000_000) as u32).to_le_bytes())?;
        self.out.write_all(&((at % 1_000_000) as u32).to_le_bytes())?;
        self.out.write_all(&captured.to_le_bytes())?;
        self.out.write_all(&(captured + payload).to_le_bytes())?;
        self.out.write_all(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0])?;
        let (client, server) = ([192, 0, 2, 1], [192, 0, 2, 2]);
        let (from, to) = if down { (server, client) } else { (client, server) };
        let ports: (u16, u16) = if down { (80, 50_000) } else { (50_000, 80) };
        self.out.write_all(&[0x45, 0])?;
        self.out.write_all(&((20 + tcp as u32 + payload) as u16).to_be_bytes())?;
        self.out.write_all(&[0, 0, 0x40, 0, 64, 6, 0, 0])?;
        self.out.write_all(&from)?;
        self.out.write_all(&to)?;
        self.out.write_all(&ports.0.to_be_bytes())?;
        self.out.write_all(&ports.1.to_be_bytes())?;
        self.out.write_all(&numbers.0.to_be_bytes())?;
        self.out.write_all(&numbers.1.to_be_bytes())?;
        self.out.write_all(&[((tcp / 4) as u8) << 4, flags, 0xff, 0xff, 0, 0, 0, 0])?;
        self.out.write_all(&options)
    }
}

/// Writes the download to `path` as captured at the client. Returns the number of packets.
fn download(path: &Path) -> std::io::Result<u64> {
    let mut w = Writer::new(BufWriter::new(File::create(path)?))?;
    let (syn, ack) = (2, 16);
    w.packet(1_000_000, false, (0, 0), syn, 0, None)?;
    w.packet(1_020_000, true, (0, 1), syn | ack, 0, None)?;
    w.packet(1_020_010, false, (1, 1), ack, 0, None)?;
    let seq = |n: u32| (n * MSS).wrapping_add(1);
    let mut at = 1_040_000;
    // The lowest segment that has not arrived, if there is a hole.
    let mut hole: Option<u32> = None;
    for n in 0..SEGMENTS {
        at += 100;
        // No losses at the end, as they would not be repaired.
        if n % LOSS_INTERVAL == LOSS_INTERVAL - 1 && hole.is_none() && n + FLIGHT < SEGMENTS {
            hole = Some(n);
            continue;
        }
        w.packet(at, true, (seq(n), 1), ack, MSS, None)?;
        match hole {
            Some(h) if n - h >= FLIGHT => {
                w.packet(at + 10, true, (seq(h), 1), ack, MSS, None)?;
                w.packet(at + 12, false, (1, seq(n + 1)), ack, 0, None)?;
                hole = None;
            }
            Some(h) => w.packet(at + 2, false, (1, seq(h)), ack, 0, Some((seq(h + 1), seq(n + 1))))?,
            None if n % 2 == 1 => w.packet(at + 2, false, (1, seq(n + 1)), ack, 0, None)?,
            None => {}
        }
    }
    w.out.flush()?;
    Ok(w.packets)
}

fn own_time() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// Processor time of all child processes so far.
fn others_time() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_CHILDREN) else { return Duration::ZERO };
    let duration = |t: nix::sys::time::TimeVal| Duration::new(t.tv_sec() as u64, t.tv_usec() as u32 * 1000);
    duration(usage.user_time()) + duration(usage.system_time())
}

fn print_speed(what: &str, packets: u64, took: Duration) {
    println!(
        "{what:<28} {:>7.3} M packets/s ({:.2} s)",
        packets as f64 / took.as_secs_f64() / 1e6,
        took.as_secs_f64()
    );
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::temp_dir().join(format!("fullpipe-reading-{}.pcap", std::process::id()));
    let packets = download(&path)?;
    let read = |options: Options| -> Result<Duration, Box<dyn std::error::Error>> {
        let before = own_time();
        let mut analyser = Analyser::new(options);
        input::read("the download", File::open(&path)?, |frame| analyser.add_frame(frame))?;
        let analysis = analyser.finish();
        let took = own_time() - before;
        assert_eq!(analysis.packets.tcp, packets);
        assert_eq!(analysis.connections[0].record.to_client.bytes, u64::from(SEGMENTS * MSS));
        Ok(took)
    };
    let least = |options: &Options| -> Result<Duration, Box<dyn std::error::Error>> {
        let times: Result<Vec<Duration>, _> = (0..3).map(|_| read(options.clone())).collect();
        Ok(times?.into_iter().min().unwrap_or_default())
    };
    println!("{packets} packets, {} MB", std::fs::metadata(&path)?.len() / 1_000_000);
    print_speed("fullpipe, summary", packets, least(&Options::default())?);
    let all = Options { plots: true, packets_of: Some(1), ..Options::default() };
    print_speed("fullpipe, series and plots", packets, least(&all)?);
    for (program, args) in [("tcptrace", &["-l"][..]), ("tshark", &["-q", "-z", "conv,tcp", "-r"])] {
        let before = others_time();
        let run =
            Command::new(program).args(args).arg(&path).stdout(Stdio::null()).stderr(Stdio::null()).status();
        match run {
            Ok(status) if status.success() => print_speed(program, packets, others_time() - before),
            Ok(status) => println!("{program}: {status}"),
            Err(e) => println!("{program}: not installed ({e})"),
        }
    }
    std::fs::remove_file(&path)?;
    Ok(())
}
