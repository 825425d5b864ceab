//! `fullpipe records`: what closed.

use crate::failure::Failure;
use crate::secret;
use fullpipe_ebpf::closings::{Closings, Counts, RING_BYTES, Settings};
use fullpipe_kernel::{facts, signals};
use fullpipe_live::Filter;
use fullpipe_live::records::{Anonymiser, Key, Records};
use fullpipe_report::records::{RecordsError, Rotation, Writer};
use fullpipe_units::{Bytes, Span, Time};
use nix::time::{ClockId, clock_gettime};
use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

/// Keep a record of each connection that closes: controller, process, bytes, round trips, retransmissions, limits
///
/// The kernel hands out each socket's last account as it closes (eBPF; nothing is pinned, and all of it is gone with this
/// process). What closes faster than it is written is counted and told at the end. FILE ends in .jsonl (a line a connection,
/// `fullpipe schema connection` describes it) or .parquet (if built in); - is standard output. A FILE that is there becomes
/// FILE.1. Needs root. `fullpipe report FILE` shows distributions.
///
/// FILTER is as for `fullpipe watch`, but for the state: 'sport = :443', 'controller bbr and not dst 10.0.0.0/8'.
#[derive(clap::Args)]
pub struct Args {
    /// Where to
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: PathBuf,
    /// Only these connections
    #[arg(value_name = "FILTER")]
    filter: Vec<String>,
    /// End after this time
    #[arg(long = "for", value_name = "TIME")]
    length: Option<Span>,
    /// Size of a file, after which the next takes its turn
    #[arg(long, value_name = "SIZE", default_value = "100MB")]
    max_size: Bytes,
    /// Files to keep, with the one that is written: FILE, FILE.1 and so on
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    files: u32,
    /// Replace addresses: cut to their /24 (IPv6: /48), or by a keyed hash
    #[arg(long, value_enum, value_name = "HOW")]
    anonymise: Option<How>,
    /// File with the hash's key in its first line; without it each run has a key of its own, which nobody knows
    #[arg(long, value_name = "FILE", requires = "anonymise", value_hint = clap::ValueHint::FilePath)]
    key_file: Option<PathBuf>,
    /// Also those of other network namespaces, as of containers
    #[arg(long)]
    all_namespaces: bool,
    /// Kernel memory for what closed and is not written yet
    #[arg(long, value_name = "SIZE", default_value_t = Bytes(RING_BYTES.into()))]
    buffer: Bytes,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum How {
    /// The first 24 bits, of IPv6 48
    Prefix,
    /// A hash in 100::/64, in which what has a prefix in common still has
    Hash,
}

/// What became of what closed.
struct Taken {
    records: Records,
    writer: Writer,
    unwanted: u64,
    wanted: u64,
    failure: Option<RecordsError>,
}

/// The least that a file and the ring may have.
const LEAST: u64 = 4096;
const MOST_BUFFER: u64 = 1 << 30;

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let filter = Filter::parse(&self.filter.join(" ")).map_err(Failure::usage)?;
        if filter.asks_for_state() {
            return Err(Failure::usage(
                "the filter asks for a state, and all that is recorded has closed: leave `state` out",
            ));
        }
        let (size, buffer) = (self.max_size.0, self.buffer.0);
        if size < LEAST {
            return Err(Failure::usage("--max-size: at least 4096 bytes, for a few connections"));
        }
        let ring_bytes = u32::try_from(buffer).ok().filter(|b| (LEAST..=MOST_BUFFER).contains(&(*b).into()));
        let Some(ring_bytes) = ring_bytes else {
            return Err(Failure::usage("--buffer: between 4096 bytes and 1 GiB"));
        };
        let anonymiser = self.anonymiser()?;
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        signals::on_termination(move || flag.store(true, Relaxed))
            .map_err(|e| Failure::Impossible(e.to_string()))?;

        let impossible = |e: &dyn std::fmt::Display| Failure::Impossible(e.to_string());
        let namespace = match self.all_namespaces {
            true => None,
            false => Some(facts::network_namespace().map_err(|e| {
                let what =
                    format!("the network namespace cannot be told apart ({e}): --all-namespaces records all");
                impossible(&what)
            })?),
        };
        // The programs before the file: where they cannot be had, nothing takes its turn.
        let closings = Closings::start(&Settings { namespace, ring_bytes }).map_err(|e| impossible(&e))?;
        let writer =
            Writer::open(&self.file, Rotation { bytes: size, files: self.files }).map_err(Failure::usage)?;
        let taken = RefCell::new(Taken {
            records: Records::new(filter, anonymiser, now()),
            writer,
            unwanted: 0,
            wanted: 0,
            failure: None,
        });
        eprintln!("recording connections as they close, until Ctrl-C or --for ends it");
        let began = Instant::now();
        let ended = || self.length.is_some_and(|l| began.elapsed().as_nanos() >= u128::from(l.as_nanos()));
        let outcome = closings.follow(
            |closed| taken.borrow_mut().take(&closed),
            |_| {
                let taken = &mut *taken.borrow_mut();
                let flushed = taken.writer.flush();
                taken.note(flushed);
                !stop.load(Relaxed) && !ended() && taken.failure.is_none()
            },
        );
        let counts = outcome.map_err(|e| impossible(&e))?;
        taken.into_inner().finish(counts)
    }

    fn anonymiser(&self) -> Result<Option<Anonymiser>, Failure> {
        let key = self.key_file.as_deref().map(secret::read).transpose()?;
        Ok(match (self.anonymise, key) {
            (None, _) => None,
            (Some(How::Prefix), None) => Some(Anonymiser::Prefix),
            (Some(How::Prefix), Some(_)) => {
                return Err(Failure::usage("--key-file is for --anonymise hash: a prefix has no key"));
            }
            (Some(How::Hash), Some(key)) => {
                Some(Anonymiser::Hash(Key::new(key.as_bytes()).map_err(Failure::usage)?))
            }
            (Some(How::Hash), None) => {
                let mut random = [0; 32];
                getrandom::fill(&mut random)
                    .map_err(|e| Failure::Impossible(format!("no random key: {e}")))?;
                Some(Anonymiser::Hash(Key::new(&random).map_err(Failure::usage)?))
            }
        })
    }
}

impl Taken {
    fn take(&mut self, closed: &fullpipe_kernel::closed::ClosedSocket) {
        let Some(record) = self.records.record(closed, facts::monotonic_offset().unwrap_or(0.0)) else {
            self.unwanted += 1;
            return;
        };
        self.wanted += 1;
        if self.failure.is_none() {
            let outcome = self.writer.write(&record);
            self.note(outcome);
        }
    }

    /// Keeps the first reason: after it nothing more is tried.
    fn note(&mut self, outcome: Result<(), RecordsError>) {
        if let Err(e) = outcome {
            self.failure.get_or_insert(e);
        }
    }

    fn finish(self, counts: Counts) -> Result<(), Failure> {
        let Taken { writer, unwanted, wanted, mut failure, .. } = self;
        let mut written = writer.written();
        if failure.is_none() {
            match writer.finish() {
                Ok(all) => written = all,
                Err(e) => failure = Some(e),
            }
        }
        eprintln!("{}", told(counts, written, unwanted, wanted - written));
        match failure {
            Some(e) if !e.is_closed_pipe() => Err(Failure::usage(e)),
            _ => Ok(()),
        }
    }
}

/// What became of what closed, in a line.
fn told(counts: Counts, written: u64, unwanted: u64, unwritten: u64) -> String {
    let mut line = format!("{} connections closed: {written} written", counts.closed);
    if unwanted > 0 {
        line += &format!(", {unwanted} left out by the filter");
    }
    line += &format!(", {} lost", counts.lost);
    if counts.lost > 0 {
        line += " because the buffer was full (--buffer)";
    }
    if unwritten > 0 {
        line += &format!(", {unwritten} could not be written");
    }
    if counts.skipped > 0 {
        line +=
            &format!("; up to {} more were not seen: the kernel was busy with others there", counts.skipped);
    }
    line
}

fn now() -> Time {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC);
    let nanos = now.map(|now| now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64);
    Time::from_nanos(nanos.unwrap_or(0))
}
