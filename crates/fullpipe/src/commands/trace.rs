//! `fullpipe trace`: analyses packet captures.

use crate::failure::Failure;
use crate::print::{columns, print, print_json, wrapped_to_stdout};
use crate::runs;
use fullpipe_experiment::Results;
use fullpipe_experiment::connection::{Capture, Connection, Connections, Direction, Judged, Point, Sequence};
use fullpipe_experiment::recording::Recording;
use fullpipe_report::{About, AtomicFile, Format, Output, write_capture};
use fullpipe_trace::input::Input;
use fullpipe_trace::qlog::{self, LoggedConnection};
use fullpipe_trace::{
    Analyser, Filter, LiveError, Options, TracedConnection, capture_facts, capture_interface, input, text,
};
use fullpipe_units::Span;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// The number of connections in the table; the rest are counted.
const MAX_ROWS: usize = 30;
/// The number of connections that an error names.
const MAX_FAILURES: usize = 5;

/// Analyse captures and qlogs: path, limits, controller
///
/// Reads pcap and pcapng, also compressed by gzip or zstd; `-` is standard input. The capture point
/// is inferred and reported; --at overrides it.
///
/// Also reads qlog (JSON, JSON-SEQ, NDJSON), plain or compressed. Reports what the endpoint logged,
/// and checks connections of BBR v3 against the IETF draft. Exits with 1 if a check fails.
///
/// The sender's controller is inferred by simulating each known controller on the path inferred
/// from the connection. This takes a second or more, so it is done only for a connection reported
/// in full, or for all with --controllers.
///
/// --live captures from an interface instead of a file. Packets dropped under load are counted.
/// Changes nothing on the host.
///
/// With two captures, also compares the connection with most data of the first (before) with that
/// of the second (after).
#[derive(clap::Args)]
#[command(after_help = "Examples:
  fullpipe trace capture.pcap.gz --conn 3 --out connection.html
  fullpipe trace connection.sqlog")]
pub struct Args {
    /// Captures or qlogs
    #[arg(value_name = "FILE", required_unless_present = "live", value_hint = clap::ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// Interface to capture from instead of files, or `any`; needs CAP_NET_RAW. Ctrl-C ends the
    /// capture and reports
    #[arg(long, value_name = "INTERFACE", conflicts_with = "files")]
    live: Option<String>,
    /// Duration of the --live capture
    #[arg(long = "for", value_name = "TIME", default_value = "30s", requires = "live")]
    length: Span,
    /// Connections to analyse: `host ADDRESS`, `net PREFIX/LENGTH`, `port NUMBER`, joined by `and`
    /// [default: all]
    #[arg(long, value_name = "FILTER", default_value = "", hide_default_value = true)]
    filter: Filter,
    /// Number of a connection in the list; reports only this one, in full
    #[arg(long, value_name = "N")]
    conn: Option<u32>,
    /// Infer the controller of every connection, not only of one reported in full
    #[arg(long)]
    controllers: bool,
    /// Point at which the capture was taken [default: inferred]
    #[arg(long, value_enum, value_name = "PLACE")]
    at: Option<At>,
    /// Print the connections as JSON (see `fullpipe schema connection`)
    #[arg(long)]
    json: bool,
    /// Also write a report on one connection, that of --conn or else the one with most data, to
    /// FILE, in the format of its extension: html, json, csv, parquet (if built in), png, svg,
    /// qlog, xpl (for xplot, of a capture); an existing FILE is replaced; may be repeated
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    out: Vec<PathBuf>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum At {
    /// At the end that opened the connections (SYN)
    Client,
    /// At the end that accepted the connections
    Server,
    /// Between the ends
    Between,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        if !self.out.is_empty() && self.files.len() > 2 {
            return Err(Failure::usage(
                "--out reports on one capture or compares two: name one or two files",
            ));
        }
        let mut all = Connections::new(Vec::new());
        let mut bulks = Vec::new();
        let mut failures = Vec::new();
        let live = self.live.as_ref().map(PathBuf::from);
        for file in self.files.iter().chain(&live) {
            let File { heading, facts, connections: mut shown, unlisted } = match &self.live {
                Some(interface) => self.capture(interface)?,
                None => self.read(file, self.conn)?,
            };
            shown.retain(|c| self.conn.is_none_or(|n| c.record().number == n));
            if self.controllers || shown.len() == 1 {
                shown.iter_mut().for_each(Traced::identify);
            }
            let of = if self.files.len() > 1 { format!(" of {}", file.display()) } else { String::new() };
            failures.extend(
                shown.iter().filter_map(Traced::failure).map(|(n, checks)| format!("{n}{of}: {checks}")),
            );
            if let (Some(n), true) = (self.conn, shown.is_empty()) {
                let file = file.display();
                return Err(Failure::usage(format!(
                    "{file} has no connection {n}{}: run without --conn to list all",
                    if unlisted > 0 { " in its list" } else { "" }
                )));
            }
            if self.json {
                all.connections.extend(shown.iter().map(|c| c.record().clone()));
                all.unlisted = all.unlisted.saturating_add(unlisted);
                all.captures.push(facts);
            } else {
                let records: Vec<&Connection> = shown.iter().map(Traced::record).collect();
                print(wrapped_to_stdout(&heading) + &show(&records, unlisted > 0))?;
            }
            bulks.extend(
                shown.into_iter().max_by_key(|c| bytes(c.record())).map(|largest| (file.as_path(), largest)),
            );
        }
        if let ([(a, before), (b, after)], false) = (&bulks[..], self.json) {
            let (a, b) = (a.display().to_string(), b.display().to_string());
            print(text::comparison((&a, before.record()), (&b, after.record()), columns()))?;
        }
        if !self.out.is_empty() {
            self.report(bulks)?;
        }
        if self.json {
            print_json(&all)?;
        }
        deviations(&failures).map_or(Ok(()), |words| Err(Failure::Check(words)))
    }

    /// Reads `file`, with the packets of connection `detailed`.
    fn read(&self, file: &Path, detailed: Option<u32>) -> Result<File, Failure> {
        let stdin = file.as_os_str() == "-";
        let name = if stdin { "standard input".to_owned() } else { file.display().to_string() };
        let source: Box<dyn Read + Send> = if stdin {
            Box::new(io::stdin())
        } else {
            Box::new(runs::open(file, "a packet capture or a qlog")?)
        };
        let source = match input::recognise(&name, source).map_err(Failure::usage)? {
            Input::Capture(source) => source,
            Input::Log(source) => return self.read_log(file, &name, source),
        };
        let mut analyser = Analyser::new(self.options(detailed));
        let outcome =
            input::read(&name, source, |frame| analyser.add_frame(frame)).map_err(Failure::usage)?;
        let analysed = analyser.finish();
        let (counters, damage) = (&outcome.counters, outcome.damage.as_ref());
        let heading = text::heading(&name, counters, &analysed.packets, damage);
        let facts = capture_facts(&name, counters, &analysed.packets, damage);
        if self.json && outcome.damage.is_some() {
            eprint!("{heading}");
        }
        let unlisted = analysed.packets.unlisted_connections;
        let connections = analysed.connections.into_iter().map(Traced::capture).collect();
        Ok(File { heading, facts, connections, unlisted })
    }

    /// Reads the log that begins in `source`.
    fn read_log(&self, file: &Path, name: &str, source: qlog::Source<'static>) -> Result<File, Failure> {
        if self.at.is_some() || self.filter != Filter::default() {
            return Err(Failure::usage(format!(
                "{name} is a qlog, which has no packets to filter and names its end: omit --filter and --at"
            )));
        }
        let mut open = || match input::recognise(name, std::fs::File::open(file)?) {
            Ok(Input::Log(source)) => Ok(source),
            Ok(Input::Capture(_)) => Err(io::Error::other("the file changed while it was read")),
            Err(e) => Err(io::Error::other(e)),
        };
        let again: Option<&mut dyn FnMut() -> io::Result<qlog::Source<'static>>> =
            if file.as_os_str() == "-" { None } else { Some(&mut open) };
        let log = qlog::read(name, source, again).map_err(Failure::usage)?;
        let heading = text::log_heading(&log.facts, log.connections.len(), log.unlisted);
        if self.json && log.facts.damage.is_some() {
            eprint!("{heading}");
        }
        let connections = log.connections.into_iter().map(|c| Traced::Log(Box::new(c))).collect();
        Ok(File { heading, facts: log.facts, connections, unlisted: log.unlisted })
    }

    /// The options of the analysis, with the packets of connection `detailed`.
    fn options(&self, detailed: Option<u32>) -> Options {
        let at = self.at.map(|at| match at {
            At::Client => Point::Client,
            At::Server => Point::Server,
            At::Between => Point::Between,
        });
        let plots = !self.out.is_empty();
        Options { at, plots, packets_of: detailed.filter(|_| plots), filter: self.filter.clone() }
    }

    /// Captures the packets on `interface` until the time has passed or a signal arrives.
    fn capture(&self, interface: &str) -> Result<File, Failure> {
        let stop = crate::termination::flag()?;
        let length = Duration::from(self.length);
        let mut began = None;
        // First called once the socket is open.
        let ended = || {
            let since: &Instant = began.get_or_insert_with(|| {
                eprintln!("capturing on {interface} for {}; press Ctrl-C to end earlier", self.length);
                Instant::now()
            });
            stop.load(Relaxed) || since.elapsed() >= length
        };
        let mut analyser = Analyser::new(self.options(self.conn));
        let counters = capture_interface(interface, &self.filter, ended, |frame| analyser.add_frame(frame))
            .map_err(|e| match e {
            LiveError::NoInterface { .. } => Failure::usage(e),
            _ => Failure::Impossible(e.to_string()),
        })?;
        let analysed = analyser.finish();
        let heading = text::heading(interface, &counters, &analysed.packets, None);
        let facts = capture_facts(interface, &counters, &analysed.packets, None);
        if self.json && counters.dropped > 0 {
            eprint!("{heading}");
        }
        let unlisted = analysed.packets.unlisted_connections;
        let connections = analysed.connections.into_iter().map(Traced::capture).collect();
        Ok(File { heading, facts, connections, unlisted })
    }

    /// Writes the reports on the connection with most data of each capture.
    fn report(&self, bulks: Vec<(&Path, Traced)>) -> Result<(), Failure> {
        if bulks.is_empty() {
            return Err(Failure::usage("no connection to report on"));
        }
        let mut shown = Vec::new();
        for (file, largest) in bulks {
            shown.push((file, self.with_packets(file, largest)?));
        }
        let is_xplot = |path: &PathBuf| path.extension().is_some_and(|e| e == "xpl");
        let log = shown.iter().find(|(_, c)| matches!(c, Traced::Log(_)));
        if let Some((file, path)) = log.map(|(file, _)| file).zip(self.out.iter().find(|path| is_xplot(path)))
        {
            return Err(Failure::usage(format!(
                "{}: xplot shows the packets of a capture, and {} is a qlog: use another extension, such as \
                 .html",
                path.display(),
                file.display()
            )));
        }
        let several = shown.len() > 1;
        let title =
            |(file, c): &(&Path, Traced)| format!("{}, connection {}", file.display(), c.record().number);
        let mut command = "fullpipe trace".to_owned();
        if self.live.is_some() {
            command += " --live";
        }
        shown.iter().for_each(|(file, _)| command += &format!(" {}", file.display()));
        if let [(_, one)] = &shown[..] {
            command += &format!(" --conn {}", one.record().number);
        }
        let about = About { title: shown.iter().map(title).collect::<Vec<_>>().join("; "), command };
        let mut runs = Vec::new();
        let mut notes = Vec::new();
        for (file, largest) in &shown {
            let mut run = largest.recording();
            let bulk = largest.bulk();
            if several {
                run.label = file.display().to_string();
                notes.push(format!("{}:", run.label));
            }
            notes.extend(text::conclusions(bulk));
            notes.extend(largest.record().log.iter().flat_map(|log| text::verdicts(log)));
            runs.push(run);
        }
        let results = Results::new(runs);
        // A page on two connections has no room for how each controller was inferred; the text output shows
        // it.
        let sender = shown.first().filter(|_| !several).and_then(|(_, c)| c.bulk().sender.as_ref());
        let sequences: Vec<_> = shown.iter().flat_map(|(_, c)| c.sequences().iter().cloned()).collect();
        for path in &self.out {
            if is_xplot(path) {
                let text: String =
                    shown.iter().map(|(_, c)| text::xplot(c.record(), c.sequences())).collect();
                AtomicFile::write(path, text.as_bytes()).map_err(Failure::usage)?;
            } else {
                let output = Output::open(path).map_err(Failure::usage)?;
                let written = match output.format() {
                    Format::Html => output
                        .write_with(|out| write_capture(&results, &about, &notes, sender, &sequences, out)),
                    _ => output.write(&results, &about),
                };
                written.map_err(Failure::usage)?;
            }
            eprintln!("wrote {}", path.display());
        }
        Ok(())
    }

    /// `largest` with its packets. The first pass could not know which connection it would be: the
    /// file is read again.
    fn with_packets(&self, file: &Path, traced: Traced) -> Result<Traced, Failure> {
        let Traced::Capture(largest) = traced else { return Ok(traced) };
        let number = largest.record.number;
        // Standard input and interfaces cannot be read again.
        if !largest.sequences.is_empty() || file.as_os_str() == "-" || self.live.is_some() {
            return Ok(Traced::Capture(largest));
        }
        let connections = self.read(file, Some(number))?.connections;
        let found = connections.into_iter().find(|c| c.record().number == number);
        let Some(Traced::Capture(mut found)) = found else {
            return Ok(Traced::Capture(largest));
        };
        match largest.record.bulk().0.sender.clone() {
            Some(sender) => found.record.bulk_mut().sender = Some(sender),
            None => found.identify(),
        }
        Ok(Traced::Capture(found))
    }
}

/// What a file or an interface has.
struct File {
    heading: String,
    facts: Capture,
    connections: Vec<Traced>,
    unlisted: u64,
}

/// A connection of a capture or of a log.
enum Traced {
    Capture(Box<TracedConnection>),
    Log(Box<LoggedConnection>),
}

impl Traced {
    fn capture(c: TracedConnection) -> Traced {
        Traced::Capture(Box::new(c))
    }

    fn record(&self) -> &Connection {
        match self {
            Traced::Capture(c) => &c.record,
            Traced::Log(c) => &c.record,
        }
    }

    /// The direction to report on: that with more data, or what the endpoint of a log sent.
    fn bulk(&self) -> &Direction {
        match self {
            Traced::Capture(c) => c.record.bulk().0,
            Traced::Log(c) => c.sent(),
        }
    }

    fn sequences(&self) -> &[Sequence] {
        match self {
            Traced::Capture(c) => &c.sequences,
            Traced::Log(_) => &[],
        }
    }

    fn recording(&self) -> Recording {
        match self {
            Traced::Capture(c) => c.recording(),
            Traced::Log(c) => c.recording(),
        }
    }

    /// Infers the controller; a log names it, or does not.
    fn identify(&mut self) {
        if let Traced::Capture(c) = self {
            c.identify();
        }
    }

    /// The number of a connection that fails checks, and these.
    fn failure(&self) -> Option<(u32, String)> {
        let record = self.record();
        let checks = record.log.iter().flat_map(|log| &log.checks);
        let failed = checks.filter(|check| check.result == Judged::Failed).map(|check| check.check.as_str());
        let failed: Vec<&str> = failed.collect();
        (!failed.is_empty()).then(|| (record.number, failed.join(", ")))
    }
}

/// The connections that fail checks, if any.
fn deviations(failures: &[String]) -> Option<String> {
    let rest = failures.len().saturating_sub(MAX_FAILURES);
    let more = if rest > 0 { format!("; and {rest} more") } else { String::new() };
    let shown = failures.get(..failures.len().min(MAX_FAILURES))?.join("; connection ");
    (!failures.is_empty()).then(|| format!("checks against the BBR draft failed: connection {shown}{more}"))
}

fn bytes(c: &Connection) -> u64 {
    c.to_server.bytes.saturating_add(c.to_client.bytes)
}

/// One connection in full, several as a table, those with most data first.
fn show(records: &[&Connection], has_unlisted: bool) -> String {
    if let [one] = records {
        return wrapped_to_stdout(&text::detail(one));
    }
    let mut order = records.to_vec();
    order.sort_by_key(|c| std::cmp::Reverse(bytes(c)));
    let rest = order.len().saturating_sub(MAX_ROWS);
    order.truncate(MAX_ROWS);
    let mut out = text::table(order, columns());
    if rest > 0 {
        let these = if has_unlisted { "these" } else { "all" };
        let connections = if rest == 1 { "connection" } else { "connections" };
        out += &format!("and {rest} {connections} with less data: --json lists {these}\n");
    }
    if !records.is_empty() {
        out += "--conn N reports one in full\n";
    }
    out
}
