//! The emulator's threads: read, advance, send, wait.

use super::access::Access;
use super::audit::Audit;
use super::clock::Clock;
use super::direction::{Direction, KnownFlows};
use super::frames::FrameSegment;
use super::port::Attachment;
use crate::LabError;
use crate::capture::Tap;
use crate::priority;
use fullpipe_experiment::recording::{LinkRecording, LinkRow, Series};
use fullpipe_kernel::facts::SchedStatFile;
use fullpipe_kernel::packets::{FRAMES_PER_BLOCK, Port};
use fullpipe_path::{self as path, BuildContext, Change, DropCause, LinkSpec, Path};
use fullpipe_units::{Rate, Span, Time};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender as Channel, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Largest (about 500 frames) and smallest ring of a direction, in MiB.
const RING_BLOCKS: [usize; 2] = [34, 4];
/// A ring holds this much time of single packets. The kernel clears a ring in one go, which blocks
/// its processor for tens of milliseconds and would affect other runs, so rings are not larger.
const RING_HOLDS: Span = Span::from_millis(100);

/// Below this round trip the emulator busy-waits for the last moments: a timer's lateness (some 30
/// µs) would be a large part of it.
const SPIN_BELOW: Span = Span::from_millis(2);
const SPIN_FOR: Span = Span::from_micros(60);

/// From this rate on each direction has its own thread.
const TWO_THREADS_FROM: Rate = Rate::from_bits_per_sec(2_000_000_000);

/// What to emulate.
pub(crate) struct Plan<'a> {
    pub(crate) forward: &'a [LinkSpec],
    pub(crate) reverse: &'a [LinkSpec],
    pub(crate) mtu: u32,
    /// The highest rate of the path in either direction; `None` if it is unlimited.
    pub(crate) rate: Option<Rate>,
    pub(crate) seed: u64,
    /// Sampling interval of the links; `None` to record none.
    pub(crate) sample: Option<Span>,
    pub(crate) known: KnownFlows,
    /// The flows' access links.
    pub(crate) accesses: Vec<Access>,
    /// The captures of the two directions.
    pub(crate) taps: [Option<Tap>; 2],
}

/// One link at the end of a run.
pub(crate) struct LinkReport {
    pub(crate) recording: LinkRecording,
    /// L3 bytes that came out.
    pub(crate) bytes_out: u64,
    pub(crate) max_queue_bytes: u64,
}

/// The emulator's report when it stops.
pub(crate) struct EmulatorReport {
    /// Forward links, reverse links, access links.
    pub(crate) links: Vec<LinkReport>,
    pub(crate) audit: Audit,
    /// Number of its threads.
    pub(crate) threads: usize,
}

/// The result of one thread: its directions, their links' series, and its audit.
type Account = (Vec<Direction>, Vec<Vec<Series>>, Audit);

/// A running emulator.
pub(crate) struct Emulator {
    /// The run's clock.
    pub(crate) clock: Clock,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Account>>,
    changes: Vec<Channel<(path::Direction, Change)>>,
}

impl Emulator {
    /// Starts between two interfaces, towards client and server, and with it the run's clock.
    pub(crate) fn start(between: [Attachment; 2], plan: Plan<'_>) -> Result<Self, LabError> {
        let chains = [chain(&plan, path::Direction::Forward)?, chain(&plan, path::Direction::Reverse)?];
        let blocks = ring_blocks(&plan);
        let [client, server] = between;
        let ports = [client.open(blocks)?, server.open(blocks)?];
        let context = context(&plan, path::Direction::Forward);
        let sample = plan.sample;
        // Only after the ports are open, which takes tenths of a second while other runs open theirs.
        let clock = Clock::start();
        let directions = directions(chains, ports, plan, clock)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (mut threads, mut changes) = (Vec::new(), Vec::new());
        for directions in teams(directions, &context) {
            let (send, receive) = channel();
            let series = directions.iter().map(|d| d.stats().map(|_| link_series()).collect()).collect();
            let worker = Worker {
                directions,
                series,
                clock,
                stop: Arc::clone(&stop),
                changes: receive,
                sample,
                spin: context.base_rtt < SPIN_BELOW,
                coalesce: coalescing(&context),
                audit: Audit::new(),
            };
            let thread = thread::Builder::new()
                .name("emulator".to_owned())
                .spawn(move || worker.run())
                .map_err(|e| LabError::Impossible(format!("cannot start a thread ({e})")))?;
            threads.push(thread);
            changes.push(send);
        }
        Ok(Emulator { clock, stop, threads, changes })
    }

    /// Changes a link of one direction now.
    pub(crate) fn change(&self, way: path::Direction, change: Change) {
        for team in &self.changes {
            // A thread that has stopped ignores changes.
            let _ = team.send((way, change));
        }
    }

    /// Stops, and returns the report.
    pub(crate) fn stop(self) -> Result<EmulatorReport, LabError> {
        self.stop.store(true, Ordering::Relaxed);
        let threads = self.threads.len();
        let mut audit = Audit::new();
        let (mut links, mut own) = (Vec::new(), Vec::new());
        for thread in self.threads {
            let (directions, series, part) =
                thread.join().map_err(|_| LabError::Failed("the emulator panicked".to_owned()))?;
            audit = audit.merge(part);
            for (direction, series) in directions.iter().zip(series) {
                let way = match direction.way {
                    path::Direction::Forward => "forward",
                    path::Direction::Reverse => "reverse",
                };
                let shared = direction.chain.stats().len();
                for (i, (stats, series)) in direction.stats().zip(series).enumerate() {
                    let (label, links) = match i.checked_sub(shared) {
                        None => (format!("{way} {}", i + 1), &mut links),
                        Some(nth) => (format!("access of {}", direction.accesses[nth].label), &mut own),
                    };
                    links.push(LinkReport {
                        recording: LinkRecording {
                            label,
                            name: None,
                            packets_in: stats.arrived_packets,
                            packets_out: stats.delivered_packets,
                            drops: DropCause::ALL
                                .into_iter()
                                .map(|c| (c.name().to_owned(), stats.dropped_by(c)))
                                .filter(|(_, n)| *n > 0)
                                .collect(),
                            ce_marked: stats.marked_packets,
                            series,
                        },
                        bytes_out: stats.delivered_bytes,
                        max_queue_bytes: stats.max_queue_bytes,
                    });
                }
            }
        }
        links.append(&mut own);
        Ok(EmulatorReport { links, audit, threads })
    }
}

fn context(plan: &Plan<'_>, way: path::Direction) -> BuildContext {
    BuildContext::for_path(plan.forward, plan.reverse, way, plan.mtu, plan.seed)
}

/// The links of one direction.
fn chain(plan: &Plan<'_>, way: path::Direction) -> Result<Path<FrameSegment>, LabError> {
    let (links, name) = match way {
        path::Direction::Forward => (plan.forward, "forward"),
        path::Direction::Reverse => (plan.reverse, "reverse"),
    };
    Path::new(links, &context(plan, way)).map_err(|e| LabError::Input(format!("path.{name}: {e}")))
}

/// Both directions, forward first, over the client's and the server's port.
fn directions(
    [forward, reverse]: [Path<FrameSegment>; 2],
    [from_client, from_server]: [Port; 2],
    plan: Plan<'_>,
    clock: Clock,
) -> Result<[Direction; 2], LabError> {
    let sender = |port: &Port| port.sender().map_err(|e| LabError::failed("cannot share a packet socket", e));
    let (client, server) = (sender(&from_client)?, sender(&from_server)?);
    let [forward_tap, reverse_tap] = plan.taps;
    let (forward_own, reverse_own) =
        plan.accesses.into_iter().partition(|access| access.way == path::Direction::Forward);
    Ok([
        Direction::new(
            path::Direction::Forward,
            (forward, forward_own),
            (from_client, server),
            plan.known.clone(),
            clock,
            forward_tap,
            is_plain(plan.forward),
        ),
        Direction::new(
            path::Direction::Reverse,
            (reverse, reverse_own),
            (from_server, client),
            plan.known,
            clock,
            reverse_tap,
            is_plain(plan.reverse),
        ),
    ])
}

/// Assigns the directions to threads.
fn teams(directions: [Direction; 2], context: &BuildContext) -> Vec<Vec<Direction>> {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    if context.bottleneck >= TWO_THREADS_FROM && cpus > 1 {
        directions.into_iter().map(|d| vec![d]).collect()
    } else {
        vec![directions.into()]
    }
}

/// Size of each ring in MiB. The direction without data carries acknowledgements.
fn ring_blocks(plan: &Plan<'_>) -> usize {
    let [most, least] = RING_BLOCKS;
    let bytes = plan.rate.unwrap_or(Rate::MAX).bytes_in(RING_HOLDS);
    let frames = usize::try_from(bytes / u64::from(plan.mtu)).unwrap_or(usize::MAX);
    (frames / FRAMES_PER_BLOCK).clamp(least, most)
}

fn link_series() -> Series {
    Series::with_columns(LinkRow::COLUMNS)
}

/// Whether only queues, rates and constant delays delay packets on these links.
fn is_plain(links: &[LinkSpec]) -> bool {
    links.iter().all(|link| {
        let plain = LinkSpec {
            name: link.name.clone(),
            rate: link.rate,
            delay: link.delay,
            queue: link.queue.clone(),
            loss: link.loss.clone(),
            ingress_loss: link.ingress_loss.clone(),
            ..LinkSpec::default()
        };
        plain == *link
    })
}

/// How long a due data segment may wait for the next ones, so that they are sent as one
/// super-packet in one system call. Receive offload (GRO) and interrupt moderation in network cards
/// do the same at such rates, and thin acknowledgements in the same way.
fn coalescing(context: &BuildContext) -> Span {
    const MOST: Span = Span::from_micros(50);
    match context.bottleneck.as_bits_per_sec() {
        0..300_000_000 => Span::ZERO,
        300_000_000..3_000_000_000 => (context.base_rtt / 20).min(MOST),
        _ => MOST,
    }
}

struct Worker {
    directions: Vec<Direction>,
    series: Vec<Vec<Series>>,
    clock: Clock,
    stop: Arc<AtomicBool>,
    changes: Receiver<(path::Direction, Change)>,
    sample: Option<Span>,
    spin: bool,
    coalesce: Span,
    audit: Audit,
}

/// Longest sleep: a stop or a change is noticed within it.
const HEARTBEAT: Span = Span::from_millis(10);

impl Worker {
    fn run(mut self) -> Account {
        priority::emulator(self.spin && self.directions.len() > 1);
        let mut next_sample = self.sample.map_or(Time::NEVER, |s| Time::ZERO + s);
        while !self.stop.load(Ordering::Relaxed) {
            for direction in &mut self.directions {
                direction.receive(&mut self.audit);
            }
            let now = self.clock.now();
            for (way, change) in self.changes.try_iter() {
                for direction in self.directions.iter_mut().filter(|d| d.way == way) {
                    direction.chain.apply(now, &change);
                }
            }
            for direction in &mut self.directions {
                direction.deliver(now, !self.coalesce.is_zero(), &mut self.audit);
            }
            while next_sample <= now {
                self.record(next_sample);
                next_sample += self.sample.unwrap_or(Span::MAX);
            }
            self.wait(next_sample);
        }
        for direction in &self.directions {
            direction.close_account(&mut self.audit);
        }
        self.audit.cpu = thread_cpu();
        let account = SchedStatFile::for_current_thread().and_then(|account| account.read());
        self.audit.waited = account.unwrap_or_default().waited;
        (self.directions, self.series, self.audit)
    }

    fn record(&mut self, at: Time) {
        for (direction, series) in self.directions.iter().zip(&mut self.series) {
            for (link, series) in direction.stats().zip(series) {
                let rate = if link.rate == Rate::MAX { f64::NAN } else { link.rate.as_bits_per_sec_f64() };
                let row = LinkRow {
                    queue_bytes: link.queue_bytes as f64,
                    rate_bps: rate,
                    dropped_packets: link.dropped_packets() as f64,
                };
                series.push(at.as_secs_f64(), &row.values());
            }
        }
    }

    /// Waits until something is due or a frame arrives.
    fn wait(&self, next_sample: Time) {
        let due = |d: &Direction| d.next_event() + if d.carries_data() { self.coalesce } else { Span::ZERO };
        let wake = self.directions.iter().map(due).fold(next_sample, Time::min);
        let arrived = || self.directions.iter().any(|d| d.port().ready());
        if arrived() {
            return;
        }
        let mut left = wake.since(self.clock.now());
        if self.spin {
            if left > SPIN_FOR {
                self.sleep((left - SPIN_FOR).min(HEARTBEAT));
                left = wake.since(self.clock.now());
            }
            if left <= SPIN_FOR {
                while self.clock.now() < wake && !arrived() {
                    std::hint::spin_loop();
                }
            }
        } else if !left.is_zero() {
            self.sleep(left.min(HEARTBEAT));
        }
    }

    fn sleep(&self, span: Span) {
        let mut fds: Vec<PollFd<'_>> =
            self.directions.iter().map(|d| PollFd::new(d.port().as_fd(), PollFlags::POLLIN)).collect();
        let timeout = TimeSpec::from_duration(Duration::from(span));
        // An interrupted wait is treated as a timeout: the caller checks for work.
        let _ = ppoll(&mut fds, Some(timeout), None);
    }
}

fn thread_cpu() -> Span {
    nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID)
        .map_or(Span::ZERO, |t| Span::from_nanos(t.tv_sec() as u64 * 1_000_000_000 + t.tv_nsec() as u64))
}
