//! `fullpipe records`: records of connections as they close.

use crate::failure::Failure;
use crate::secret;
use fullpipe_ebpf::closings::{Closings, Counts, RING_BYTES, Settings};
use fullpipe_kernel::facts;
use fullpipe_live::Filter;
use fullpipe_live::records::{Anonymiser, Key, Records};
use fullpipe_report::records::{RecordsError, Rotation, Writer};
use fullpipe_units::{Bytes, Span, Time};
use nix::time::{ClockId, clock_gettime};
use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// Record each connection as it closes
///
/// A record has the controller, process, bytes, RTT, retransmissions and limits of the connection,
/// read by eBPF programs, which are unloaded when `fullpipe records` exits. Records dropped under
/// load are counted and reported at the end. FILE ends in .jsonl (one line per connection, see
/// `fullpipe schema connection`) or .parquet (if built in); `-` is standard output. An existing
/// FILE is kept: closed.jsonl is renamed to closed.1.jsonl. Needs root. `fullpipe report FILE`
/// shows distributions.
///
/// FILTER has the syntax of `fullpipe watch` without states: 'sport = :443', 'controller bbr and
/// not dst 10.0.0.0/8'.
#[derive(clap::Args)]
#[command(after_help = "Example: sudo fullpipe records closed.jsonl 'sport = :443' --for 1h")]
pub struct Args {
    /// File to write: .jsonl, .parquet, or `-`
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
    /// Connections to record [default: all]
    #[arg(value_name = "FILTER")]
    filter: Vec<String>,
    /// Exit after this time [default: run until Ctrl-C]
    #[arg(long = "for", value_name = "TIME")]
    length: Option<Span>,
    /// Size at which the file is rotated
    #[arg(long, value_name = "SIZE", default_value = "100MB")]
    max_size: Bytes,
    /// Number of files to keep, including the current one: closed.jsonl, closed.1.jsonl, …
    #[arg(
        long,
        value_name = "N",
        default_value_t = 10,
        value_parser = clap::value_parser!(u32).range(1..=10_000)
    )]
    files: u32,
    /// Method to anonymise addresses [default: none]
    #[arg(long, value_enum, value_name = "METHOD")]
    anonymise: Option<Method>,
    /// File with the key of the hash in its first line [default: a random key per run, which is not
    /// kept]
    #[arg(long, value_name = "FILE", requires = "anonymise", value_hint = clap::ValueHint::FilePath)]
    key_file: Option<PathBuf>,
    /// Include connections of other network namespaces, such as containers
    #[arg(long)]
    all_namespaces: bool,
    /// Kernel memory for records that are not yet written, 4096 bytes to 1 GiB
    #[arg(long, value_name = "SIZE", default_value_t = Bytes(RING_BYTES.into()))]
    buffer: Bytes,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Method {
    /// Truncate to /24, or /48 for IPv6
    Prefix,
    /// Replace by a keyed hash in 100::/64; reports can still group by /24 or /48
    Hash,
}

/// Writes the records of closed connections, and counts them.
struct Collector {
    records: Records,
    writer: Writer,
    /// Rejected by the filter.
    rejected: u64,
    accepted: u64,
    failure: Option<RecordsError>,
}

/// The minimum size of a file and of the ring buffer, in bytes.
const MIN_SIZE: u64 = 4096;
const MAX_BUFFER: u64 = 1 << 30;

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let filter = Filter::parse(&self.filter.join(" ")).map_err(Failure::usage)?;
        if filter.needs_state() {
            return Err(Failure::usage("the filter cannot use `state`: all recorded connections are closed"));
        }
        let (size, buffer) = (self.max_size.0, self.buffer.0);
        if size < MIN_SIZE {
            return Err(Failure::usage("--max-size must be at least 4096 bytes"));
        }
        let ring_bytes =
            u32::try_from(buffer).ok().filter(|b| (MIN_SIZE..=MAX_BUFFER).contains(&(*b).into()));
        let Some(ring_bytes) = ring_bytes else {
            return Err(Failure::usage("--buffer must be between 4096 bytes and 1 GiB"));
        };
        let anonymiser = self.anonymiser()?;
        let stop = crate::termination::flag()?;

        let impossible = |e: &dyn std::fmt::Display| Failure::Impossible(e.to_string());
        let namespace = match self.all_namespaces {
            true => None,
            false => Some(facts::network_namespace().map_err(|e| {
                let reason = format!(
                    "cannot determine the network namespace ({e}): use --all-namespaces to record all"
                );
                impossible(&reason)
            })?),
        };
        // The programs before the file: if they cannot be loaded, no file is rotated.
        let closings = Closings::start(&Settings { namespace, ring_bytes }).map_err(|e| impossible(&e))?;
        let rotation = Rotation { bytes: size, files: self.files };
        let began = Instant::now();
        let ended = || self.length.is_some_and(|l| began.elapsed().as_nanos() >= u128::from(l.as_nanos()));
        let writer = match Writer::open(&self.file, rotation, &|| stop.load(Relaxed) || ended()) {
            Err(e) if e.is_stopped() => {
                eprintln!("no record was written: {} had no reader", self.file.display());
                return Ok(());
            }
            writer => writer.map_err(Failure::usage)?,
        };
        let collector = RefCell::new(Collector {
            records: Records::new(filter, anonymiser, now()),
            writer,
            rejected: 0,
            accepted: 0,
            failure: None,
        });
        eprintln!("recording connections as they close; Ctrl-C or --for ends it");
        let outcome = closings.follow(
            |closed| collector.borrow_mut().record(&closed),
            |_| {
                let collector = &mut *collector.borrow_mut();
                let flushed = collector.writer.flush();
                collector.note(flushed);
                !stop.load(Relaxed) && !ended() && collector.failure.is_none()
            },
        );
        let counts = outcome.map_err(|e| impossible(&e))?;
        collector.into_inner().finish(counts)
    }

    fn anonymiser(&self) -> Result<Option<Anonymiser>, Failure> {
        let key = self.key_file.as_deref().map(secret::read).transpose()?;
        Ok(match (self.anonymise, key) {
            (None, _) => None,
            (Some(Method::Prefix), None) => Some(Anonymiser::Prefix),
            (Some(Method::Prefix), Some(_)) => {
                return Err(Failure::usage("--key-file requires --anonymise hash"));
            }
            (Some(Method::Hash), Some(key)) => {
                Some(Anonymiser::Hash(Key::new(key.as_bytes()).map_err(Failure::usage)?))
            }
            (Some(Method::Hash), None) => {
                let mut random = [0; 32];
                getrandom::fill(&mut random)
                    .map_err(|e| Failure::Impossible(format!("cannot generate a random key: {e}")))?;
                Some(Anonymiser::Hash(Key::new(&random).map_err(Failure::usage)?))
            }
        })
    }
}

impl Collector {
    fn record(&mut self, closed: &fullpipe_kernel::closed::ClosedSocket) {
        let Some(record) = self.records.record(closed, facts::monotonic_offset().unwrap_or(0.0)) else {
            self.rejected += 1;
            return;
        };
        self.accepted += 1;
        if self.failure.is_none() {
            let outcome = self.writer.write(&record);
            self.note(outcome);
        }
    }

    /// Keeps the first error, after which nothing more is written.
    fn note(&mut self, outcome: Result<(), RecordsError>) {
        if let Err(e) = outcome {
            self.failure.get_or_insert(e);
        }
    }

    fn finish(self, counts: Counts) -> Result<(), Failure> {
        let Collector { writer, rejected, accepted, mut failure, .. } = self;
        let mut written = writer.written();
        if failure.is_none() {
            match writer.finish() {
                Ok(all) => written = all,
                Err(e) => failure = Some(e),
            }
        }
        eprintln!("{}", summary(counts, written, rejected, accepted - written));
        match failure {
            Some(e) if !e.is_closed_pipe() => Err(Failure::usage(e)),
            _ => Ok(()),
        }
    }
}

/// One line on what was recorded and dropped.
fn summary(counts: Counts, written: u64, rejected: u64, failed: u64) -> String {
    let mut line = format!("{} connections closed: {written} written", counts.closed);
    if rejected > 0 {
        line += &format!(", {rejected} excluded by the filter");
    }
    line += &format!(", {} dropped", counts.lost);
    if counts.lost > 0 {
        line += " because the buffer was full (see --buffer)";
    }
    if failed > 0 {
        line += &format!(", {failed} could not be written");
    }
    if counts.skipped > 0 {
        line +=
            &format!("; up to {} more were missed while the kernel ran the program already", counts.skipped);
    }
    line
}

fn now() -> Time {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC);
    let nanos = now.map(|now| now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64);
    Time::from_nanos(nanos.unwrap_or(0))
}
