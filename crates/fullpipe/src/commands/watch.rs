//! `fullpipe watch`: the host's own connections.

use crate::failure::Failure;
use crate::print::{columns, print, print_json_line};
use crate::runs::{opened, write};
use fullpipe_kernel::signals;
use fullpipe_live::table::Order;
use fullpipe_live::view::{self, ViewError};
use fullpipe_live::{Filter, LookError, Reader, Recorder, Snapshot, text};
use fullpipe_report::About;
use fullpipe_units::Span;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Watch the host's connections: which controller drives each, what it believes, what limits it
///
/// FILTER is as for ss, and knows a few words more: 'dport = :443', 'dst 10.0.0.0/8 and not state close-wait',
/// 'controller bbr', 'process nginx', 'unit nginx.service'. Nothing is changed, and no root is needed for one's own
/// network namespace; as root also the processes of other users are named.
#[derive(clap::Args)]
pub struct Args {
    /// Only these connections
    #[arg(value_name = "FILTER")]
    filter: Vec<String>,
    /// Look twice, an interval apart, print what there is, and end
    #[arg(long)]
    once: bool,
    /// Print JSON: a line a look
    #[arg(long)]
    json: bool,
    /// Also write a recording to FILE at the end; its extension tells the form: html, json, csv, parquet (if built
    /// in), png, svg, qlog. May be repeated
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    record: Vec<PathBuf>,
    /// Time between two looks
    #[arg(long, value_name = "TIME", default_value = "1s")]
    interval: Span,
    /// End after this time
    #[arg(long = "for", value_name = "TIME")]
    length: Option<Span>,
    /// Order of the rows
    #[arg(long, value_enum, value_name = "ORDER", default_value = "rate")]
    order: By,
    /// Rows that --once prints
    #[arg(long, value_name = "N", default_value_t = 40)]
    rows: usize,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum By {
    Rate,
    Rtt,
    Queueing,
    Retransmissions,
    Cwnd,
    Age,
}

/// A shorter time between two looks would only make the host busy.
const SHORTEST: Span = Span::from_millis(50);

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        if self.interval < SHORTEST {
            return Err(Failure::usage(
                "--interval: at least 50ms: each look goes through all sockets of the host",
            ));
        }
        let typed = self.filter.join(" ");
        let mut reader = Reader::open(Filter::parse(&typed).map_err(Failure::usage)?).map_err(impossible)?;
        #[cfg(feature = "ebpf")]
        {
            reader = reader.with_beliefs(Box::<super::beliefs::Loaded>::default());
        }
        // Before anything is watched: what cannot be written must not be noticed at the end.
        let outputs = opened(&self.record)?;
        let mut recorder = (!outputs.is_empty()).then(Recorder::new);

        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        signals::on_termination(move || flag.store(true, Relaxed))
            .map_err(|e| Failure::Impossible(e.to_string()))?;
        let began = Instant::now();
        let length = self.length.map(Duration::from);
        let ended = || stop.load(Relaxed) || length.is_some_and(|length| began.elapsed() >= length);

        let terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
        let every = Duration::from(self.interval);
        // What was recorded is written however the watching ended.
        let outcome = (|| {
            if self.json {
                self.lines(&mut reader, recorder.as_mut(), &ended)?;
            } else if self.once || (!terminal && recorder.is_none()) {
                let snapshot = after(&mut reader, every, recorder.as_mut(), &ended)?;
                print(text::once(&snapshot, self.order.order(), width(), self.rows))?;
            } else if terminal {
                let colour = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
                let shown = view::run(&mut reader, typed.clone(), every, colour, recorder.as_mut(), &ended);
                shown.map_err(|e| match e {
                    ViewError::Look(e) => impossible(e),
                    terminal => Failure::Impossible(terminal.to_string()),
                })?;
            } else {
                while !ended() {
                    let snapshot = reader.look().map_err(impossible)?;
                    recorder.iter_mut().for_each(|r| r.add(&snapshot));
                    wait(every, &ended);
                }
            }
            Ok(())
        })();
        if let Some(recorder) = recorder {
            let about = About {
                title: if typed.is_empty() { "connections of this host".to_owned() } else { typed },
                command: String::new(),
            };
            let left_out = recorder.left_out();
            write(outputs, &recorder.results(), &about)?;
            if left_out > 0 {
                eprintln!("{left_out} more connections are not in it: a filter of fewer keeps them");
            }
        }
        outcome
    }

    /// A line of JSON a look, the first one included: what happened before it is not known, and it says so by silence.
    fn lines(
        &self,
        reader: &mut Reader,
        mut recorder: Option<&mut Recorder>,
        ended: &dyn Fn() -> bool,
    ) -> Result<(), Failure> {
        let every = Duration::from(self.interval);
        if self.once {
            let snapshot = after(reader, every, recorder, ended)?;
            return print_json_line(&snapshot).map(drop);
        }
        while !ended() {
            let snapshot = reader.look().map_err(impossible)?;
            if let Some(recorder) = recorder.as_deref_mut() {
                recorder.add(&snapshot);
            }
            if !print_json_line(&snapshot)? {
                break;
            }
            wait(every, ended);
        }
        Ok(())
    }
}

impl By {
    fn order(self) -> Order {
        match self {
            By::Rate => Order::Rate,
            By::Rtt => Order::RoundTrip,
            By::Queueing => Order::Queueing,
            By::Retransmissions => Order::Retransmitted,
            By::Cwnd => Order::Cwnd,
            By::Age => Order::Age,
        }
    }
}

/// What is there after `every`, so that what happened meanwhile is known.
fn after(
    reader: &mut Reader,
    every: Duration,
    mut recorder: Option<&mut Recorder>,
    ended: &dyn Fn() -> bool,
) -> Result<Snapshot, Failure> {
    let mut look = || {
        let snapshot = reader.look().map_err(impossible)?;
        if let Some(recorder) = recorder.as_deref_mut() {
            recorder.add(&snapshot);
        }
        Ok(snapshot)
    };
    let first = look()?;
    wait(every, ended);
    if ended() {
        return Ok(first);
    }
    drop(first);
    look()
}

/// Sleeps, in pieces short enough to end soon when asked to.
fn wait(length: Duration, ended: &dyn Fn() -> bool) {
    let until = Instant::now() + length;
    while !ended() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(Duration::from_millis(100)));
    }
}

/// Columns there are to print in.
fn width() -> u16 {
    columns().and_then(|columns| columns.try_into().ok()).unwrap_or(120)
}

fn impossible(e: LookError) -> Failure {
    Failure::Impossible(e.to_string())
}
