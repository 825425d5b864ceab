//! `fullpipe race`: controllers on one path. Writes the scenario that the options stand for and runs it
//! like any scenario file.

use crate::failure::Failure;
use crate::runs::{Choice, Reporting, check_controller, kernel_offers};
use fullpipe_experiment::scenario::{Case, ScenarioError, parse};
use fullpipe_path::{Limit, QueueSpec};
use fullpipe_run::{Engine, vocabulary};
use fullpipe_units::{Bytes, Fraction, Rate, Span};
use toml::{Table, Value};

/// Who races if nobody is named.
const DEFAULT: [&str; 5] = ["bbr", "bbr3", "cubic", "hybla", "reno"];
/// The same in the lab: the kernel's own, and ours in it.
const DEFAULT_IN_LAB: [&str; 6] = ["bbr", "cubic", "reno", "fp_bbr3", "fp_bbr1", "fp_hybla"];

/// Compare congestion controllers on one path.
///
/// Without arguments: bbr, bbr3, cubic, hybla and reno, one after another, on 100 Mbit/s, 100 ms round-trip time,
/// a buffer of one bandwidth-delay product, 1 % random loss, for 30 seconds. With --engine lab: the kernel's bbr,
/// cubic and reno, and fp_bbr3, fp_bbr1 and fp_hybla, which are loaded for the time of the race if run as root.
#[derive(clap::Args)]
#[command(after_help = examples(), next_help_heading = "Path")]
pub struct Args {
    /// Controllers, each with its settings after a colon: `bbr cubic:hystart=off` [default: bbr bbr3 cubic hybla
    /// reno].
    #[arg(value_name = "CC[:KEY=VALUE,…]", help_heading = None)]
    cc: Vec<String>,
    /// Rate of the bottleneck.
    #[arg(long, allow_hyphen_values = true, default_value = "100mbit")]
    rate: Rate,
    /// Round-trip propagation delay.
    #[arg(long, allow_hyphen_values = true, default_value = "100ms")]
    rtt: Span,
    /// Limit of the bottleneck's queue: `1bdp`, `64k`, `100p`, `20ms` [default: 1bdp, or the queue's own].
    #[arg(long, allow_hyphen_values = true, value_name = "LIMIT")]
    buffer: Option<Limit>,
    /// Kind of the bottleneck's queue [default: drop-tail].
    #[arg(long, value_name = "KIND", value_parser = queue_kinds())]
    queue: Option<String>,
    /// Random loss behind the bottleneck.
    #[arg(long, allow_hyphen_values = true, default_value = "1%", value_name = "SHARE")]
    loss: Fraction,
    /// Rate of the way back, if it is limited.
    #[arg(long, value_name = "RATE")]
    reverse_rate: Option<Rate>,
    /// Largest packet in bytes, IP header included.
    #[arg(long, default_value_t = 1500, value_name = "BYTES")]
    mtu: u32,

    /// How long each run lasts.
    #[arg(
        long,
        allow_hyphen_values = true,
        default_value = "30s",
        value_name = "TIME",
        help_heading = "Runs"
    )]
    duration: Span,
    /// Leave the first part of a run out of its figures.
    #[arg(long, value_name = "TIME", help_heading = "Runs")]
    warmup: Option<Span>,
    /// Let all controllers share the path at once instead of one after another.
    #[arg(long, help_heading = "Runs")]
    together: bool,
    /// Flows of each controller.
    #[arg(long, default_value_t = 1, value_name = "N", help_heading = "Runs")]
    flows: u32,
    /// Time between the starts of the flows of one controller.
    #[arg(long, value_name = "TIME", help_heading = "Runs")]
    stagger: Option<Span>,
    /// What each flow transfers; its completion is timed [default: as much as it can].
    #[arg(long, value_name = "BYTES", help_heading = "Runs")]
    size: Option<Bytes>,
    /// Negotiate Explicit Congestion Notification.
    #[arg(long, help_heading = "Runs")]
    ecn: bool,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1, value_name = "N", help_heading = "Runs")]
    seed: u32,
    /// Runs of each, with seeds counting up.
    #[arg(long, default_value_t = 1, value_name = "N", help_heading = "Runs")]
    repeats: u32,
    /// Run once for each value of KEY: rate, rtt, buffer, queue, loss, duration, flows, size, mtu, or any
    /// dotted key of a scenario file. May be repeated: every combination is run.
    #[arg(long, value_name = "KEY=A,B,…", value_parser = Axis::parse, help_heading = "Runs")]
    sweep: Vec<Axis>,
    /// Interval between the samples of the time series.
    #[arg(long, default_value = "10ms", value_name = "TIME", help_heading = "Runs")]
    sample: Span,

    #[command(flatten)]
    reporting: Reporting,
}

fn examples() -> String {
    let mut text = String::from("Controllers:\n");
    for c in fullpipe_cc::CONTROLLERS {
        text += &format!("  {:<8} {}\n", c.name, c.about);
    }
    text += "In the lab also what the kernel has, as vegas, and what is loaded into it: fp_bbr3, fp_bbr1, fp_hybla.\n";
    text + "\nExamples:\n  \
        fullpipe race --out report.html\n  \
        fullpipe race bbr cubic --rate 1gbit --rtt 20ms --buffer 0.5bdp --loss 0\n  \
        fullpipe race bbr cubic --together --loss 0 --duration 60s\n  \
        fullpipe race bbr fp_bbr3 vegas --engine lab\n  \
        fullpipe race bbr cubic --sweep loss=0.01%,0.1%,1%,5% --repeats 5"
}

fn queue_kinds() -> clap::builder::PossibleValuesParser {
    let kinds = QueueSpec::kinds().map(|(name, about)| clap::builder::PossibleValue::new(name).help(about));
    clap::builder::PossibleValuesParser::new(kinds)
}

/// A swept key and its values.
#[derive(Clone, Debug)]
struct Axis {
    key: String,
    values: Vec<Value>,
}

impl Axis {
    fn parse(text: &str) -> Result<Axis, String> {
        let (key, values) = text.split_once('=').ok_or("write KEY=A,B,… (for example rtt=10ms,100ms)")?;
        let key = match key.trim() {
            key @ ("rate" | "rtt" | "buffer" | "queue" | "loss" | "reverse_rate") => format!("path.{key}"),
            key @ ("size" | "ecn" | "stagger" | "extra_rtt" | "receive_buffer" | "send_buffer") => {
                format!("flow.{key}")
            }
            "flows" => "flow.count".to_owned(),
            key => key.to_owned(),
        };
        let values: Vec<Value> = values.split(',').map(|v| value(v.trim())).collect();
        if key.is_empty() || values.iter().any(|v| v.as_str() == Some("")) {
            return Err(format!("`{text}` has an empty part"));
        }
        Ok(Axis { key, values })
    }
}

/// Text as TOML would take it: numbers and truth values as such, all else as text.
fn value(text: &str) -> Value {
    if let Ok(n) = text.parse::<i64>() {
        return Value::Integer(n);
    }
    match text {
        "true" => Value::Boolean(true),
        "false" => Value::Boolean(false),
        text => text.parse::<f64>().ok().filter(|n| n.is_finite()).map_or(Value::from(text), Value::Float),
    }
}

/// A controller that races, with its settings.
struct Contestant {
    /// As the user wrote it, if that says more than the name.
    label: Option<String>,
    cc: String,
    settings: Table,
}

impl Contestant {
    fn parse(text: &str, engines: &[Engine]) -> Result<Contestant, Failure> {
        let (name, settings) = text.split_once(':').unwrap_or((text, ""));
        let name = fullpipe_cc::registry::find(name).map_or(name, |about| about.name);
        check_controller(name, engines)?;
        let mut table = Table::new();
        for pair in settings.split(',').filter(|p| !p.is_empty()) {
            let (key, given) = pair.split_once('=').ok_or_else(|| {
                Failure::usage(format!(
                    "`{text}`: write settings as KEY=VALUE (for example cubic:hystart=off)"
                ))
            })?;
            table.insert(key.to_owned(), value(given));
        }
        let label = (!table.is_empty()).then(|| text.to_owned());
        Ok(Contestant { label, cc: name.to_owned(), settings: table })
    }
}

impl Args {
    /// Who races if nobody is named: in the lab, those of the usual ones that the kernel has or can be given.
    fn default_contestants(&self) -> Vec<&'static str> {
        let wanted: &[&'static str] = match self.reporting.engine() {
            Choice::Sim => return DEFAULT.to_vec(),
            Choice::Lab => &DEFAULT_IN_LAB,
            Choice::Both => &DEFAULT,
        };
        let (there, missing): (Vec<_>, Vec<_>) = wanted.iter().copied().partition(|cc| kernel_offers(cc));
        if !missing.is_empty() {
            eprintln!(
                "fullpipe: without {}: not in this kernel; run as root, fullpipe loads its own",
                missing.join(", ")
            );
        }
        there
    }

    pub fn run(self) -> Result<(), Failure> {
        let names: Vec<&str> = match self.cc.as_slice() {
            [] => self.default_contestants(),
            given => given.iter().map(String::as_str).collect(),
        };
        let engines = self.reporting.engine().engines();
        let contestants: Vec<Contestant> =
            names.into_iter().map(|name| Contestant::parse(name, engines)).collect::<Result<_, _>>()?;
        let title = self.title(&contestants);
        let mut cases = Vec::new();
        if self.together {
            cases.extend(self.cases(&title, &contestants)?);
        } else {
            for contestant in &contestants {
                let mut own = self.cases(&title, std::slice::from_ref(contestant))?;
                for case in &mut own {
                    case.contender.clone_from(&contestant.label);
                }
                cases.extend(own);
            }
        }
        self.reporting.run(title, cases, None)
    }

    fn title(&self, contestants: &[Contestant]) -> String {
        let names: Vec<&str> = contestants.iter().map(|c| c.label.as_deref().unwrap_or(&c.cc)).collect();
        let how = match (names.len(), self.together) {
            (1, _) => "",
            (_, true) => ", sharing the path",
            (_, false) => ", one after another",
        };
        match names.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} and {last}{how}", rest.join(", ")),
            _ => names.concat(),
        }
    }

    /// The runs of `contestants` at once.
    fn cases(&self, title: &str, contestants: &[Contestant]) -> Result<Vec<Case>, Failure> {
        let file = self.file(title, contestants);
        let text = toml::to_string(&file).map_err(Failure::usage)?;
        let no_files = |name: &str| Err(format!("{name}: a race reads no files; use `fullpipe run`"));
        parse("race", &text, &vocabulary(self.reporting.engine().engines()), &no_files)
            .map_err(|e| Failure::usage(without_place(&e)))
    }

    /// The scenario file that the options stand for.
    fn file(&self, title: &str, contestants: &[Contestant]) -> Table {
        let mut path = Table::new();
        path.insert("rate".into(), self.rate.to_string().into());
        path.insert("rtt".into(), self.rtt.to_string().into());
        match (&self.queue, &self.buffer) {
            (Some(kind), limit) => {
                let mut queue = Table::new();
                queue.insert("kind".into(), kind.as_str().into());
                if let Some(limit) = limit {
                    queue.insert("limit".into(), limit.to_string().into());
                }
                path.insert("queue".into(), queue.into());
            }
            (None, Some(limit)) => drop(path.insert("buffer".into(), limit.to_string().into())),
            (None, None) => drop(path.insert("buffer".into(), "1bdp".into())),
        }
        if self.loss != Fraction::ZERO {
            path.insert("loss".into(), self.loss.to_string().into());
        }
        if let Some(rate) = self.reverse_rate {
            path.insert("reverse_rate".into(), rate.to_string().into());
        }
        // A swept key stands for itself: what it replaces must not contradict it.
        for axis in &self.sweep {
            match axis.key.as_str() {
                "path.queue" => drop(path.remove("buffer")),
                "path.buffer" => drop(path.remove("queue")),
                _ => {}
            }
        }
        let flows = contestants.iter().map(|c| {
            let mut flow = Table::new();
            flow.insert("cc".into(), c.cc.as_str().into());
            if !c.settings.is_empty() {
                flow.insert("settings".into(), c.settings.clone().into());
            }
            if let Some(label) = &c.label {
                flow.insert("label".into(), label.as_str().into());
            }
            flow.insert("count".into(), i64::from(self.flows).into());
            if let Some(stagger) = self.stagger {
                flow.insert("stagger".into(), stagger.to_string().into());
            }
            if let Some(size) = self.size {
                flow.insert("size".into(), size.to_string().into());
            }
            flow.insert("ecn".into(), self.ecn.into());
            Value::from(flow)
        });
        let mut file = Table::new();
        file.insert("title".into(), title.into());
        file.insert("duration".into(), self.duration.to_string().into());
        if let Some(warmup) = self.warmup {
            file.insert("warmup".into(), warmup.to_string().into());
        }
        file.insert("sample".into(), self.sample.to_string().into());
        file.insert("seed".into(), i64::from(self.seed).into());
        file.insert("repeats".into(), i64::from(self.repeats).into());
        file.insert("mtu".into(), i64::from(self.mtu).into());
        file.insert("path".into(), path.into());
        file.insert("flow".into(), Value::Array(flows.collect()));
        if !self.sweep.is_empty() {
            let axes = self.sweep.iter().map(|a| (a.key.clone(), Value::Array(a.values.clone())));
            file.insert("sweep".into(), Value::Table(axes.collect()));
        }
        file
    }
}

/// An error in a file that nobody wrote: the reason and the way out, without a line.
fn without_place(e: &ScenarioError) -> String {
    match &e.help {
        Some(help) => format!("{}\n  help: {help}", e.message),
        None => e.message.clone(),
    }
}
