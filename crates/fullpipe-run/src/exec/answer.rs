//! What a program writes to fullpipe: one line of JSON per question.

use super::SCHEMA;
use super::failure::printable;
use fullpipe_cc::pacer::GSO_MAX_BYTES;
use fullpipe_cc::{Gain, Rate, Snapshot, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::sync::{Mutex, PoisonError};

/// The largest integer of an answer.
pub const MAX_VALUE: u64 = i64::MAX as u64;
/// The largest gain of an answer.
pub const MAX_GAIN: f64 = 1e6;
/// Longest name of a state in bytes.
pub const MAX_STATE_BYTES: usize = 64;
/// Most different names of states of one program.
pub const MAX_STATES: usize = 64;
/// Most characters of a reason why an answer is refused, before they are escaped.
const MAX_REASON: usize = 300;
/// Most different names of states in a process: they are kept until it exits.
const MAX_NAMES: usize = 4096;

/// The state of a program that reports none.
const NO_STATE: &str = "Running";

/// A line from the program. Fields that are absent keep their value; `null` unsets one. Sizes are
/// bytes as in the messages, times nanoseconds, rates bytes per second; all are integers from 1 to
/// 2^63 − 1 unless a field says otherwise.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Answer<'a> {
    /// `fullpipe/controller/1`. Required in the first answer, and allowed only there.
    #[serde(borrow)]
    schema: Option<Cow<'a, str>>,
    /// First answer only: whether to write `sent` lines [default: true].
    sent: Option<bool>,
    /// First answer only: whether the transport reduces the window to `ssthresh` during fast
    /// recovery by Proportional Rate Reduction (RFC 6937) [default: false].
    prr: Option<bool>,
    /// First answer only: whether packets may be sent as ECN-capable [default: false].
    ecn: Option<bool>,
    /// Congestion window [default: the initial window].
    window: Option<u64>,
    /// Slow-start threshold; 2^63 − 1 is as if it were not set.
    #[serde(deserialize_with = "nullable")]
    #[schemars(with = "Option<u64>")]
    ssthresh: Nullable<u64>,
    /// Pacing rate; without it packets are not paced.
    #[serde(deserialize_with = "nullable")]
    #[schemars(with = "Option<u64>")]
    pacing_rate: Nullable<u64>,
    /// Bytes that leave together when packets are paced [default: 65215].
    quantum: Option<u64>,
    /// The controller keeps the window small on purpose (BBR in `ProbeRTT`): rates measured now
    /// are marked application-limited [default: false].
    app_limited: Option<bool>,
    /// State for plots and checks: printable, at most 64 bytes; a program has at most 64.
    #[serde(borrow)]
    state: Option<Cow<'a, str>>,
    /// Bandwidth estimate that it paces by.
    #[serde(deserialize_with = "nullable")]
    #[schemars(with = "Option<u64>")]
    bw: Nullable<u64>,
    /// Windowed maximum of the delivery rate.
    #[serde(deserialize_with = "nullable")]
    #[schemars(with = "Option<u64>")]
    max_bw: Nullable<u64>,
    /// Short-term upper bound on the bandwidth estimate.
    #[serde(deserialize_with = "nullable")]
    #[schemars(with = "Option<u64>")]
    bw_shortterm: Nullable<u64>,
    /// Estimate of the round-trip propagation delay.
    #[serde(deserialize_with = "nullable")]
    #[schemars(with = "Option<u64>")]
    min_rtt: Nullable<u64>,
    /// Pacing gain, 0 to 1000000, rounded to 1/256.
    #[serde(deserialize_with = "nullable")]
    #[schemars(with = "Option<f64>")]
    pacing_gain: Nullable<f64>,
    /// Window gain, 0 to 1000000, rounded to 1/256.
    #[serde(deserialize_with = "nullable")]
    #[schemars(with = "Option<f64>")]
    cwnd_gain: Nullable<f64>,
    /// Long-term bound on inflight.
    #[serde(deserialize_with = "nullable")]
    #[schemars(with = "Option<u64>")]
    inflight_longterm: Nullable<u64>,
    /// Short-term bound on inflight.
    #[serde(deserialize_with = "nullable")]
    #[schemars(with = "Option<u64>")]
    inflight_shortterm: Nullable<u64>,
    /// Packet-timed round trips so far, from 0.
    #[serde(deserialize_with = "nullable")]
    #[schemars(with = "Option<u64>")]
    rounds: Nullable<u64>,
}

/// A field of an answer: absent, `null` or a value.
type Nullable<T> = Option<Option<T>>;

fn nullable<'de, T: Deserialize<'de>, D: Deserializer<'de>>(field: D) -> Result<Nullable<T>, D::Error> {
    Option::deserialize(field).map(Some)
}

/// The values that a program has answered so far.
#[derive(Clone, Debug, PartialEq)]
pub struct Values {
    /// State, window, rate and model. The window is at least 1.
    pub snapshot: Snapshot,
    /// Bytes that leave together, at least 1.
    pub quantum: u64,
    /// Whether rates measured now are marked application-limited.
    pub app_limited: bool,
    /// Whether it reads `sent` lines.
    pub sent: bool,
    /// Whether it uses Proportional Rate Reduction.
    pub prr: bool,
    /// Whether its packets may be ECN-capable.
    pub ecn: bool,
    greeted: bool,
    states: Vec<&'static str>,
}

impl Values {
    /// Before the first answer.
    pub fn new(initial_window: u64) -> Self {
        Values {
            snapshot: Snapshot { state: NO_STATE, cwnd: initial_window.max(1), ..Snapshot::default() },
            quantum: GSO_MAX_BYTES,
            app_limited: false,
            sent: true,
            prr: false,
            ecn: false,
            greeted: false,
            states: Vec::new(),
        }
    }

    /// Takes the values of the next answer, a line without its end.
    ///
    /// # Errors
    /// What is wrong with it, in words: at most 300 characters, none of them a control character.
    /// Nothing has changed then.
    pub fn update(&mut self, line: &[u8]) -> Result<(), String> {
        // A reason quotes the answer.
        self.apply(line).map_err(|reason| printable(&reason, MAX_REASON))
    }

    fn apply(&mut self, line: &[u8]) -> Result<(), String> {
        let text = std::str::from_utf8(line).map_err(|_| "not UTF-8 text".to_owned())?;
        let answer: Answer<'_> = serde_json::from_str(text).map_err(|e| reason(&e))?;
        self.check_greeting(&answer)?;
        let mut snapshot = self.snapshot;
        if let Some(window) = size("window", answer.window)? {
            snapshot.cwnd = window;
        }
        set(&mut snapshot.ssthresh, "ssthresh", answer.ssthresh, size)?;
        snapshot.ssthresh = snapshot.ssthresh.filter(|bytes| *bytes < MAX_VALUE);
        set(&mut snapshot.pacing_rate, "pacing_rate", answer.pacing_rate, rate)?;
        set(&mut snapshot.bw, "bw", answer.bw, rate)?;
        set(&mut snapshot.max_bw, "max_bw", answer.max_bw, rate)?;
        set(&mut snapshot.bw_shortterm, "bw_shortterm", answer.bw_shortterm, rate)?;
        set(&mut snapshot.min_rtt, "min_rtt", answer.min_rtt, span)?;
        set(&mut snapshot.pacing_gain, "pacing_gain", answer.pacing_gain, gain)?;
        set(&mut snapshot.cwnd_gain, "cwnd_gain", answer.cwnd_gain, gain)?;
        set(&mut snapshot.inflight_longterm, "inflight_longterm", answer.inflight_longterm, size)?;
        set(&mut snapshot.inflight_shortterm, "inflight_shortterm", answer.inflight_shortterm, size)?;
        set(&mut snapshot.rounds, "rounds", answer.rounds, |key, n| at_most(key, 0, n))?;
        let quantum = size("quantum", answer.quantum)?;
        if let Some(state) = answer.state {
            snapshot.state = self.state(&state)?;
        }
        self.snapshot = snapshot;
        self.quantum = quantum.unwrap_or(self.quantum);
        self.app_limited = answer.app_limited.unwrap_or(self.app_limited);
        self.sent = answer.sent.unwrap_or(self.sent);
        self.prr = answer.prr.unwrap_or(self.prr);
        self.ecn = answer.ecn.unwrap_or(self.ecn);
        self.greeted = true;
        Ok(())
    }

    /// Checks the version in the first answer, and that later ones change nothing that is fixed.
    fn check_greeting(&self, answer: &Answer<'_>) -> Result<(), String> {
        if self.greeted {
            let fixed = [
                ("schema", answer.schema.is_some()),
                ("sent", answer.sent.is_some()),
                ("prr", answer.prr.is_some()),
                ("ecn", answer.ecn.is_some()),
            ];
            return match fixed.into_iter().find(|(_, given)| *given) {
                Some((key, _)) => Err(format!("`{key}` belongs into the first answer only")),
                None => Ok(()),
            };
        }
        match answer.schema.as_deref() {
            Some(SCHEMA) => Ok(()),
            Some(other) => Err(format!("`schema` must be \"{SCHEMA}\", got {other:?}")),
            None => Err(format!("the first answer must have \"schema\":\"{SCHEMA}\"")),
        }
    }

    /// The name of a state, kept for as long as the process runs.
    fn state(&mut self, name: &str) -> Result<&'static str, String> {
        if name == self.snapshot.state {
            return Ok(self.snapshot.state);
        }
        if let Some(known) = self.states.iter().find(|known| **known == name) {
            return Ok(known);
        }
        if name.is_empty() || name.len() > MAX_STATE_BYTES || name.chars().any(char::is_control) {
            return Err(format!("`state` must be 1 to {MAX_STATE_BYTES} bytes without control characters"));
        }
        if self.states.len() >= MAX_STATES {
            return Err(format!("`state` had {MAX_STATES} different names, which is the limit"));
        }
        let name = interned(name).ok_or("`state`: all programs together had too many different names")?;
        self.states.push(name);
        Ok(name)
    }
}

/// The same text with the lifetime of the process; `None` if there are too many.
fn interned(name: &str) -> Option<&'static str> {
    static NAMES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.iter().find(|known| **known == name) {
        return Some(known);
    }
    if names.len() >= MAX_NAMES {
        return None;
    }
    let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
    names.push(name);
    Some(name)
}

/// The reason of a JSON error, without the number of the line, which is always 1.
fn reason(error: &serde_json::Error) -> String {
    error.to_string().replace(" at line 1 column ", ", column ")
}

/// Sets `place` to the checked value of `field`, if that is present.
fn set<T, V>(
    place: &mut Option<T>,
    key: &str,
    field: Nullable<V>,
    check: impl Fn(&str, Option<V>) -> Result<Option<T>, String>,
) -> Result<(), String> {
    if let Some(value) = field {
        *place = check(key, value)?;
    }
    Ok(())
}

fn at_most(key: &str, least: u64, value: Option<u64>) -> Result<Option<u64>, String> {
    match value {
        Some(n) if n < least || n > MAX_VALUE => {
            Err(format!("`{key}` must be between {least} and {MAX_VALUE}, got {n}"))
        }
        value => Ok(value),
    }
}

fn size(key: &str, value: Option<u64>) -> Result<Option<u64>, String> {
    at_most(key, 1, value)
}

fn rate(key: &str, value: Option<u64>) -> Result<Option<Rate>, String> {
    Ok(size(key, value)?.map(Rate::from_bytes_per_sec))
}

fn span(key: &str, value: Option<u64>) -> Result<Option<Span>, String> {
    Ok(size(key, value)?.map(Span::from_nanos))
}

fn gain(key: &str, value: Option<f64>) -> Result<Option<Gain>, String> {
    match value {
        Some(gain) if !(0.0..=MAX_GAIN).contains(&gain) => {
            Err(format!("`{key}` must be between 0 and {MAX_GAIN}, got {gain}"))
        }
        value => Ok(value.map(|gain| Gain::from_256ths((gain * 256.0).round() as u32))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = r#"{"schema":"fullpipe/controller/1"}"#;

    fn after(lines: &[&str]) -> Result<Values, String> {
        let mut values = Values::new(14_480);
        for line in lines {
            values.update(line.as_bytes())?;
        }
        Ok(values)
    }

    fn refused(line: &str) -> String {
        let mut values = after(&[FIRST]).unwrap();
        let before = values.clone();
        let reason = values.update(line.as_bytes()).unwrap_err();
        assert_eq!(values, before, "a refused answer changes nothing");
        reason
    }

    #[test]
    fn absent_fields_keep_their_value_and_null_unsets_it() {
        let values =
            after(&[FIRST, r#"{"window":3000,"pacing_rate":1000,"state":"Startup"}"#, "{}"]).unwrap();
        assert_eq!((values.snapshot.cwnd, values.snapshot.state), (3000, "Startup"));
        assert_eq!(values.snapshot.pacing_rate, Some(Rate::from_bytes_per_sec(1000)));
        let unset = after(&[FIRST, r#"{"pacing_rate":1000}"#, r#"{"pacing_rate":null}"#]).unwrap();
        assert_eq!((unset.snapshot.pacing_rate, unset.snapshot.cwnd), (None, 14_480));
    }

    #[test]
    fn first_answer_must_name_the_version_and_later_ones_must_not() {
        assert!(after(&["{}"]).unwrap_err().contains("must have \"schema\":\"fullpipe/controller/1\""));
        let other = after(&[r#"{"schema":"fullpipe/controller/2"}"#]).unwrap_err();
        assert_eq!(other, "`schema` must be \"fullpipe/controller/1\", got \"fullpipe/controller/2\"");
        assert_eq!(refused(r#"{"prr":true}"#), "`prr` belongs into the first answer only");
        assert_eq!(refused(FIRST), "`schema` belongs into the first answer only");
    }

    #[test]
    fn absurd_values_are_refused_with_their_key_and_range() {
        let range = "must be between 1 and 9223372036854775807";
        assert_eq!(refused(r#"{"window":0}"#), format!("`window` {range}, got 0"));
        assert_eq!(refused(r#"{"pacing_rate":0}"#), format!("`pacing_rate` {range}, got 0"));
        let beyond = refused(r#"{"pacing_rate":9223372036854775808}"#);
        assert_eq!(beyond, format!("`pacing_rate` {range}, got 9223372036854775808"));
        assert_eq!(refused(r#"{"min_rtt":0}"#), format!("`min_rtt` {range}, got 0"));
        assert_eq!(refused(r#"{"cwnd_gain":-1}"#), "`cwnd_gain` must be between 0 and 1000000, got -1");
        for (line, part) in [
            (r#"{"window":-1}"#, "invalid value: integer `-1`"),
            (r#"{"window":1.5}"#, "floating point"),
            (r#"{"window":99999999999999999999}"#, "floating point"),
            (r#"{"window":"1"}"#, "invalid type: string"),
            (r#"{"window":null}"#, ""),
            (r#"{"cwnd_gain":1e999}"#, "number out of range"),
            (r#"{"pacing_rat":1}"#, "unknown field `pacing_rat`"),
            (r#"{"window":1,"window":2}"#, "duplicate field `window`"),
            ("{\"state\":\"a\\nb\"}", "without control characters"),
            (r#"{"state":""}"#, "1 to 64 bytes"),
            ("", "EOF"),
            ("{} {}", "trailing characters"),
            ("\u{0}", "expected value"),
        ] {
            if line == r#"{"window":null}"# {
                // A window cannot be unset: `null` is as if it were absent.
                assert_eq!(after(&[FIRST, line]).unwrap().snapshot.cwnd, 14_480);
                continue;
            }
            assert!(refused(line).contains(part), "{line}: {}", refused(line));
        }
        let mut values = Values::new(1);
        assert_eq!(values.update(&[0xff]).unwrap_err(), "not UTF-8 text");
    }

    #[test]
    fn reasons_are_short_and_have_no_control_characters() {
        let long = refused(&format!("{{\"{}\":1}}", "\\u001b".repeat(10_000)));
        assert!(long.starts_with("unknown field `\\u{1b}\\u{1b}"), "{long}");
        assert!(long.len() < 3000 && !long.contains(char::is_control), "{}", long.len());
        let other = after(&[&format!("{{\"schema\":\"{}\"}}", "x".repeat(60_000))]).unwrap_err();
        assert!(other.ends_with('…') && other.len() < 400, "{other}");
    }

    #[test]
    fn gains_are_rounded_to_256ths() {
        let values = after(&[FIRST, r#"{"pacing_gain":2.77,"cwnd_gain":1}"#]).unwrap();
        assert_eq!(values.snapshot.pacing_gain, Some(Gain::from_256ths(709)));
        assert_eq!(values.snapshot.cwnd_gain, Some(Gain::UNIT));
    }

    #[test]
    fn number_of_states_is_bounded() {
        let mut values = after(&[FIRST]).unwrap();
        let mut answer = |i: usize| values.update(format!("{{\"state\":\"s{i}\"}}").as_bytes());
        assert!((0..MAX_STATES).chain(0..MAX_STATES).all(|i| answer(i).is_ok()));
        assert!(answer(MAX_STATES).unwrap_err().contains("64 different names"));
    }
}
