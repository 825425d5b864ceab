//! `fullpipe watch`: the host's own connections.

use crate::failure::Failure;
use crate::print::{columns, print, print_json_line};
use crate::runs::{open_outputs, write};
use fullpipe_live::table::Order;
use fullpipe_live::view::{self, ViewError};
use fullpipe_live::{Filter, Reader, Recorder, SampleError, Snapshot, text};
use fullpipe_report::About;
use fullpipe_units::Span;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Watch this host's connections: controller, model state and limits
///
/// FILTER has the syntax of ss with some additions: 'dport = :443', 'dst 10.0.0.0/8 and not state
/// close-wait', 'controller bbr', 'process nginx', 'unit nginx.service'. Changes nothing and needs
/// no root for your own network namespace; root is needed to name the processes of other users.
#[derive(clap::Args)]
#[command(after_help = "Example: fullpipe watch 'dport = :443 and controller bbr'")]
pub struct Args {
    /// Connections to show [default: all]
    #[arg(value_name = "FILTER")]
    filter: Vec<String>,
    /// Print one report over one interval and exit
    #[arg(long)]
    once: bool,
    /// Print JSON, one line per sample
    #[arg(long)]
    json: bool,
    /// Also write a recording to FILE at the end, in the format of its extension: html, json, csv,
    /// parquet (if built in), png, svg, qlog; may be repeated
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    record: Vec<PathBuf>,
    /// Time between samples
    #[arg(long, value_name = "TIME", default_value = "1s")]
    interval: Span,
    /// Exit after this time [default: run until Ctrl-C]
    #[arg(long = "for", value_name = "TIME")]
    length: Option<Span>,
    /// Sort order of the rows
    #[arg(long, value_enum, value_name = "ORDER", default_value = "rate")]
    order: SortBy,
    /// Maximum number of rows that --once prints
    #[arg(long, value_name = "N", default_value_t = 40)]
    rows: usize,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum SortBy {
    /// Delivery rate
    Rate,
    /// Smoothed round-trip time
    Rtt,
    /// Queueing delay: RTT above its minimum
    Queueing,
    /// Retransmitted segments
    Retransmissions,
    /// Congestion window
    Cwnd,
    /// Age of the connection
    Age,
}

/// Sampling more often would mostly load the host.
const MIN_INTERVAL: Span = Span::from_millis(50);

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        if self.interval < MIN_INTERVAL {
            return Err(Failure::usage(
                "--interval must be at least 50ms, since each sample reads all sockets of the host",
            ));
        }
        let typed = self.filter.join(" ");
        let mut reader = Reader::open(Filter::parse(&typed).map_err(Failure::usage)?).map_err(impossible)?;
        #[cfg(feature = "ebpf")]
        {
            reader = reader.with_models(Box::<super::beliefs::Loaded>::default());
        }
        // Opened before anything is sampled, so that an unwritable file is reported at once.
        let outputs = open_outputs(&self.record)?;
        let mut recorder = (!outputs.is_empty()).then(Recorder::new);

        let stop = crate::termination::flag()?;
        let began = Instant::now();
        let length = self.length.map(Duration::from);
        let ended = || stop.load(Relaxed) || length.is_some_and(|length| began.elapsed() >= length);

        let terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
        let every = Duration::from(self.interval);
        // The recording is written even if sampling ends with an error.
        let outcome = (|| {
            if self.json {
                self.lines(&mut reader, recorder.as_mut(), &ended)?;
            } else if self.once || (!terminal && recorder.is_none()) {
                let snapshot = sample_after(&mut reader, every, recorder.as_mut(), &ended)?;
                print(text::render(&snapshot, self.order.order(), width(), self.rows))?;
            } else if terminal {
                let colour = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
                let shown = view::run(&mut reader, typed.clone(), every, colour, recorder.as_mut(), &ended);
                shown.map_err(|e| match e {
                    ViewError::Sample(e) => impossible(e),
                    terminal => Failure::Impossible(terminal.to_string()),
                })?;
            } else {
                while !ended() {
                    let snapshot = reader.sample().map_err(impossible)?;
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
            let left_out = recorder.omitted();
            write(outputs, &recorder.results(), &about)?;
            if left_out > 0 {
                eprintln!("the recording omits {left_out} connections: use a narrower filter to keep them");
            }
        }
        outcome
    }

    /// Prints one line of JSON per sample. The first has no rates, since there is no earlier sample
    /// to compare with.
    fn lines(
        &self,
        reader: &mut Reader,
        mut recorder: Option<&mut Recorder>,
        ended: &dyn Fn() -> bool,
    ) -> Result<(), Failure> {
        let every = Duration::from(self.interval);
        if self.once {
            let snapshot = sample_after(reader, every, recorder, ended)?;
            return print_json_line(&snapshot).map(drop);
        }
        while !ended() {
            let snapshot = reader.sample().map_err(impossible)?;
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

impl SortBy {
    fn order(self) -> Order {
        match self {
            SortBy::Rate => Order::Rate,
            SortBy::Rtt => Order::RoundTrip,
            SortBy::Queueing => Order::Queueing,
            SortBy::Retransmissions => Order::Retransmitted,
            SortBy::Cwnd => Order::Cwnd,
            SortBy::Age => Order::Age,
        }
    }
}

/// The connections after `every`, with rates over that time.
fn sample_after(
    reader: &mut Reader,
    every: Duration,
    mut recorder: Option<&mut Recorder>,
    ended: &dyn Fn() -> bool,
) -> Result<Snapshot, Failure> {
    let mut sample = || {
        let snapshot = reader.sample().map_err(impossible)?;
        if let Some(recorder) = recorder.as_deref_mut() {
            recorder.add(&snapshot);
        }
        Ok(snapshot)
    };
    let first = sample()?;
    wait(every, ended);
    if ended() {
        return Ok(first);
    }
    drop(first);
    sample()
}

/// Sleeps in short steps, so that it ends soon after `ended` is true.
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

/// The width of the output in columns.
fn width() -> u16 {
    columns().and_then(|columns| columns.try_into().ok()).unwrap_or(120)
}

fn impossible(e: SampleError) -> Failure {
    Failure::Impossible(e.to_string())
}
