//! Races: controllers on one path, one after another or sharing it, turned into scenario files.

use crate::{Engine, check_controller, programs, split_settings, stacks, vocabulary};
use fullpipe_experiment::scenario::{Case, ScenarioError, is_program, parse, range};
use fullpipe_path::Limit;
use fullpipe_units::{Bytes, Fraction, Rate, Span};
use toml::{Table, Value};

/// The controllers of a race that names none.
pub const DEFAULT_CONTROLLERS: [&str; 5] = ["bbr", "bbr3", "cubic", "hybla", "reno"];

/// Runs of each case with a controller that is not repeatable.
pub const MIN_UNREPEATABLE_RUNS: u32 = 3;

/// The path and the options of a race. [`Race::default`] is the case that BBR was designed for:
/// 100 Mbit/s, 100 ms, a buffer of one bandwidth-delay product, 1 % random loss, 30 seconds.
#[derive(Clone, PartialEq, Debug)]
pub struct Race {
    /// Rate of the bottleneck.
    pub rate: Rate,
    /// Round-trip propagation delay.
    pub rtt: Span,
    /// Limit of the bottleneck's queue. `None`: one bandwidth-delay product, or the default of
    /// `queue`.
    pub buffer: Option<Limit>,
    /// Kind of the bottleneck's queue; `None` for drop-tail.
    pub queue: Option<String>,
    /// Random loss behind the bottleneck.
    pub loss: Fraction,
    /// Rate of the reverse path, if it is limited.
    pub reverse_rate: Option<Rate>,
    /// Largest packet in bytes, IP header included.
    pub mtu: u32,
    /// How long each run lasts.
    pub duration: Span,
    /// Time at the start of a run that its figures leave out.
    pub warmup: Option<Span>,
    /// Whether all controllers share the path at once instead of one after another.
    pub together: bool,
    /// Flows of each controller.
    pub flows: u32,
    /// Time between the starts of the flows of one controller.
    pub stagger: Option<Span>,
    /// Bytes that each flow transfers; `None` for as many as it can.
    pub size: Option<Bytes>,
    /// Whether ECN is negotiated.
    pub ecn: bool,
    /// Seed of everything random.
    pub seed: u32,
    /// Runs of each controller, with consecutive seeds.
    pub repeats: u32,
    /// Keys to vary: every combination of values is run.
    pub sweep: Vec<Axis>,
    /// Interval between the samples of the time series.
    pub sample: Span,
}

impl Default for Race {
    fn default() -> Self {
        Race {
            rate: Rate::from_bits_per_sec(100_000_000),
            rtt: Span::from_millis(100),
            buffer: None,
            queue: None,
            loss: Fraction::from_billionths(10_000_000),
            reverse_rate: None,
            mtu: 1500,
            duration: Span::from_secs(30),
            warmup: None,
            together: false,
            flows: 1,
            stagger: None,
            size: None,
            ecn: false,
            seed: 1,
            repeats: 1,
            sweep: Vec::new(),
            sample: Span::from_millis(10),
        }
    }
}

/// Invalid options of a race: what is wrong and, on a line of its own, what to do.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}{}", .help.as_deref().map(|help| format!("\n  help: {help}")).unwrap_or_default())]
pub struct RaceError {
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
}

impl From<ScenarioError> for RaceError {
    /// Without the line number: the user did not write the generated file.
    fn from(e: ScenarioError) -> Self {
        RaceError { message: e.message, help: e.help }
    }
}

/// A swept key and its values.
#[derive(Clone, PartialEq, Debug)]
pub struct Axis {
    key: String,
    values: Vec<Value>,
}

impl Axis {
    /// `KEY=A,B,…`, where each may be a range ([`range`]).
    ///
    /// # Errors
    /// An empty key or value, in words.
    pub fn parse(text: &str) -> Result<Axis, String> {
        let (key, values) = text.split_once('=').ok_or("write KEY=A,B,… (for example rtt=10ms,100ms)")?;
        let key = match key.trim() {
            key @ ("rate" | "rtt" | "buffer" | "queue" | "loss" | "reverse_rate") => format!("path.{key}"),
            key @ ("size" | "ecn" | "stagger" | "extra_rtt" | "receive_buffer" | "send_buffer") => {
                format!("flow.{key}")
            }
            "flows" => "flow.count".to_owned(),
            key => key.to_owned(),
        };
        let mut written = Vec::new();
        for part in values.split(',').map(str::trim) {
            match range(part) {
                Some(values) => written.extend(values?),
                None => written.push(part.to_owned()),
            }
        }
        let values: Vec<Value> = written.iter().map(|v| value(v)).collect();
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
#[derive(Clone, PartialEq, Debug)]
pub struct Contestant {
    /// As the user wrote it, if that says more than the name.
    label: Option<String>,
    cc: String,
    settings: Table,
}

impl Contestant {
    /// `NAME`, `NAME:KEY=VALUE,…`, or `exec:PROGRAM`, of what `engines` can run.
    ///
    /// # Errors
    /// A controller that they do not have, a setting without a value.
    pub fn parse(text: &str, engines: &[Engine]) -> Result<Contestant, RaceError> {
        if let Some(program) = programs::canonical(text) {
            checked(&program, engines)?;
            return Ok(Contestant { label: None, cc: program, settings: Table::new() });
        }
        let (name, settings) = split_settings(text);
        let canonical = stacks::canonical(name);
        let name = canonical.as_deref().unwrap_or(name);
        let name = fullpipe_cc::registry::find(name).map_or(name, |about| about.name);
        checked(name, engines)?;
        if text.ends_with(':') {
            return Err(RaceError {
                message: format!("`{text}`: no setting after the colon"),
                help: Some("write KEY=VALUE (for example cubic:hystart=off), or omit the colon".to_owned()),
            });
        }
        let mut table = Table::new();
        for pair in settings.split(',').filter(|p| !p.is_empty()) {
            let (key, given) = pair.split_once('=').ok_or_else(|| RaceError {
                message: format!("`{text}`: write settings as KEY=VALUE (for example cubic:hystart=off)"),
                help: None,
            })?;
            table.insert(key.to_owned(), value(given));
        }
        let label = (!table.is_empty()).then(|| text.to_owned());
        Ok(Contestant { label, cc: name.to_owned(), settings: table })
    }
}

/// Checks that `engines` have the controller `name`.
fn checked(name: &str, engines: &[Engine]) -> Result<(), RaceError> {
    check_controller(name, engines).map_err(|fault| RaceError { message: fault.reason, help: fault.help })
}

impl Race {
    /// The runs of `contestants`, which `engines` are to make.
    ///
    /// # Errors
    /// What the path, the settings or the sweep do not allow.
    pub fn cases(&self, contestants: &[Contestant], engines: &[Engine]) -> Result<Vec<Case>, RaceError> {
        self.check_rates()?;
        let title = self.title(contestants);
        if self.together {
            return self.cases_of(&title, contestants, engines);
        }
        let mut cases = Vec::new();
        for contestant in contestants {
            let mut own = self.cases_of(&title, std::slice::from_ref(contestant), engines)?;
            for case in &mut own {
                case.contender.clone_from(&contestant.label);
            }
            cases.extend(own);
        }
        Ok(cases)
    }

    /// A path of rate 0 would deliver nothing.
    fn check_rates(&self) -> Result<(), RaceError> {
        let is_zero = |value: &Value| match value {
            Value::Integer(n) => *n == 0,
            Value::String(text) => text.parse() == Ok(Rate::ZERO),
            _ => false,
        };
        let swept = |key: &str| self.sweep.iter().any(|a| a.key == key && a.values.iter().any(is_zero));
        for (name, rate, key) in
            [("rate", Some(self.rate), "path.rate"), ("reverse rate", self.reverse_rate, "path.reverse_rate")]
        {
            if rate == Some(Rate::ZERO) || swept(key) {
                let message = format!("{name} must be greater than 0");
                return Err(RaceError { message, help: Some("write for example 100mbit".to_owned()) });
            }
        }
        Ok(())
    }

    /// What the race is called.
    pub fn title(&self, contestants: &[Contestant]) -> String {
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
    fn cases_of(
        &self,
        title: &str,
        contestants: &[Contestant],
        engines: &[Engine],
    ) -> Result<Vec<Case>, RaceError> {
        let file = self.file(title, contestants);
        let text = toml::to_string(&file).map_err(|e| RaceError { message: e.to_string(), help: None })?;
        let no_files = |name: &str| Err(format!("{name}: a race reads no files; use `fullpipe run`"));
        let mut vocabulary = vocabulary(engines);
        vocabulary.controllers.extend(self.programs(contestants, engines)?);
        Ok(parse("race", &text, &vocabulary, &no_files)?)
    }

    /// The programs that the user named, as contestants or in the sweep.
    fn programs(&self, contestants: &[Contestant], engines: &[Engine]) -> Result<Vec<String>, RaceError> {
        let swept = self.sweep.iter().filter(|axis| axis.key.ends_with(".cc")).flat_map(|axis| &axis.values);
        let named = contestants.iter().map(|contestant| contestant.cc.as_str());
        let names = named.chain(swept.filter_map(Value::as_str)).filter(|name| is_program(name));
        names.map(|name| checked(name, engines).map(|()| name.to_owned())).collect()
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
        file.insert("repeats".into(), i64::from(self.repeats_of(contestants)).into());
        file.insert("mtu".into(), i64::from(self.mtu).into());
        file.insert("path".into(), path.into());
        file.insert("flow".into(), Value::Array(flows.collect()));
        if !self.sweep.is_empty() {
            let axes = self.sweep.iter().map(|a| (a.key.clone(), Value::Array(a.values.clone())));
            file.insert("sweep".into(), Value::Table(axes.collect()));
        }
        file
    }

    /// Runs of each case: several where one alone would say little, because another attempt with
    /// the same seed gives other results.
    fn repeats_of(&self, contestants: &[Contestant]) -> u32 {
        if contestants.iter().all(|c| stacks::is_repeatable(&c.cc)) {
            return self.repeats;
        }
        self.repeats.max(MIN_UNREPEATABLE_RUNS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contestants(names: &[&str]) -> Vec<Contestant> {
        names.iter().map(|name| Contestant::parse(name, &[Engine::Sim]).unwrap()).collect()
    }

    #[cfg(feature = "quic")]
    #[test]
    fn unrepeatable_contenders_run_several_times() {
        let cases =
            Race::default().cases(&contestants(&["newreno@Noq", "noq/bbr3"]), &[Engine::Sim]).unwrap();
        let labels: Vec<_> = cases.iter().map(Case::label).collect();
        assert_eq!(labels, ["reno@noq", "noq/bbr3, seed 1", "noq/bbr3, seed 2", "noq/bbr3, seed 3"]);
    }

    #[test]
    fn one_after_another_each_has_its_runs_and_together_they_share_one() {
        let both = contestants(&["bbr", "cubic:hystart=off"]);
        let race = Race { repeats: 2, ..Race::default() };
        let cases = race.cases(&both, &[Engine::Sim]).unwrap();
        let labels: Vec<_> = cases.iter().map(Case::label).collect();
        assert_eq!(
            labels,
            ["bbr, seed 1", "bbr, seed 2", "cubic:hystart=off, seed 1", "cubic:hystart=off, seed 2"]
        );
        assert_eq!(race.title(&both), "bbr and cubic:hystart=off, one after another");
        let shared = Race { together: true, ..Race::default() }.cases(&both, &[Engine::Sim]).unwrap();
        assert_eq!((shared.len(), shared[0].scenario.flows.len()), (1, 2));
    }

    #[test]
    fn swept_key_replaces_contradicting_keys() {
        let range = Axis::parse("loss=0%,0.01%..1% log 3").unwrap();
        assert_eq!(range.values, ["0%", "0.01%", "0.1%", "1%"].map(Value::from));
        assert_eq!(Axis::parse("flows=1..4 step 1").unwrap().values, [1, 2, 3, 4].map(Value::Integer));
        let sweep = vec![Axis::parse("queue=codel,drop-tail").unwrap(), Axis::parse("loss=0.1%,1%").unwrap()];
        let race = Race { sweep, ..Race::default() };
        assert_eq!(race.cases(&contestants(&["bbr"]), &[Engine::Sim]).unwrap().len(), 4);
        for wrong in ["loss=1%..2%", "loss", "loss=", "=1%", "loss=1%,"] {
            assert!(Axis::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn missing_features_are_named_with_a_remedy() {
        let unknown = Contestant::parse("cubik", &[Engine::Sim]).unwrap_err();
        assert!(unknown.to_string().contains("`cubik`") && unknown.help.unwrap().contains("cubic"));
        assert!(
            Contestant::parse("cubic:hystart", &[Engine::Sim]).unwrap_err().message.contains("KEY=VALUE")
        );
        assert!(Contestant::parse("bbr:", &[Engine::Sim]).unwrap_err().message.contains("no setting"));
        let race = Race { rate: Rate::ZERO, ..Race::default() };
        let stopped = race.cases(&contestants(&["bbr"]), &[Engine::Sim]).unwrap_err();
        assert_eq!(stopped.message, "rate must be greater than 0");
        let race = Race { mtu: 1, ..Race::default() };
        assert!(race.cases(&contestants(&["bbr"]), &[Engine::Sim]).unwrap_err().message.contains("mtu"));
    }
}
