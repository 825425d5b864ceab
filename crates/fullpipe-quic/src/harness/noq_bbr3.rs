//! State of noq's own BBR v3. The fields are private, so they are parsed from its `Debug` output.

use fullpipe_cc::{Gain, Rate, Snapshot, Span};
use noq_proto::congestion::Controller;
use std::fmt::{self, Write};

/// Parsing stops before this field, a long list of the packets in flight.
const STOP_FIELD: &str = "packets";

/// State names in noq and in recordings.
const STATES: [(&str, &str); 7] = [
    ("Startup", "Startup"),
    ("Drain", "Drain"),
    ("ProbeBw(Down)", "ProbeBW_DOWN"),
    ("ProbeBw(Cruise)", "ProbeBW_CRUISE"),
    ("ProbeBw(Refill)", "ProbeBW_REFILL"),
    ("ProbeBw(Up)", "ProbeBW_UP"),
    ("ProbeRtt", "ProbeRTT"),
];

/// Collects formatted text up to a field.
struct UpTo<'a> {
    field: &'a str,
    text: &'a mut String,
}

impl Write for UpTo<'_> {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        // `Debug` writes the name of a field in a separate call.
        if part == self.field {
            return Err(fmt::Error);
        }
        self.text.push_str(part);
        Ok(())
    }
}

/// The fields of a BBR v3, as text.
struct Fields(String);

impl Fields {
    /// The fields before `field`; `None` for another controller.
    fn before(controller: &dyn Controller, field: &str) -> Option<Self> {
        let mut text = String::with_capacity(2048);
        // The error only ends the formatting.
        let _ = write!(UpTo { field, text: &mut text }, "{controller:?}");
        text.starts_with("Bbr3 {").then_some(Fields(text))
    }

    fn get(&self, name: &str) -> Option<&str> {
        let start = self.0.find(&format!(" {name}: "))? + name.len() + 3;
        let rest = &self.0[start..];
        rest.split_once(", ").map_or(Some(rest), |(value, _)| Some(value))
    }

    /// A finite number.
    fn number(&self, name: &str) -> Option<f64> {
        self.get(name)?.parse().ok().filter(|value: &f64| value.is_finite())
    }

    /// A byte count; `None` if it is unset (`u64::MAX`).
    fn bytes(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok().filter(|&bytes| bytes < u64::MAX)
    }

    /// A rate in bytes per second above 0.
    fn rate(&self, name: &str) -> Option<Rate> {
        self.number(name).filter(|&bytes| bytes > 0.0).map(|bytes| Rate::from_bytes_per_sec(bytes as u64))
    }

    fn gain(&self, name: &str) -> Option<Gain> {
        self.number(name).map(|gain| Gain::from_256ths((gain * 256.0).round() as u32))
    }

    /// A duration; `None` before the first sample (`u64::MAX` seconds).
    fn span(&self, name: &str) -> Option<Span> {
        let text = self.get(name)?;
        let unit = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let value: f64 = text[..unit].parse().ok()?;
        let nanos = match &text[unit..] {
            "s" => 1e9,
            "ms" => 1e6,
            "µs" => 1e3,
            "ns" => 1.0,
            _ => return None,
        };
        (value < 1e9).then(|| Span::from_nanos((value * nanos).round() as u64))
    }

    fn state(&self) -> Option<&'static str> {
        let own = self.get("state")?;
        STATES.iter().find(|(name, _)| *name == own).map(|(_, state)| *state)
    }
}

/// The state of `controller`, if it is a BBR v3.
pub(super) fn state(controller: &dyn Controller) -> Option<&'static str> {
    Fields::before(controller, "undo_state")?.state()
}

/// The model of `controller`, if it is a BBR v3.
pub(super) fn snapshot(controller: &dyn Controller) -> Option<Snapshot> {
    let fields = Fields::before(controller, STOP_FIELD)?;
    Some(Snapshot {
        state: fields.state()?,
        cwnd: fields.bytes("cwnd")?,
        pacing_rate: fields.rate("pacing_rate"),
        bw: fields.rate("bw"),
        max_bw: fields.rate("max_bw"),
        bw_shortterm: fields.rate("bw_shortterm"),
        min_rtt: fields.span("min_rtt"),
        pacing_gain: fields.gain("pacing_gain"),
        cwnd_gain: fields.gain("cwnd_gain"),
        inflight_longterm: fields.bytes("inflight_longterm"),
        inflight_shortterm: fields.bytes("inflight_shortterm"),
        rounds: fields.bytes("round_count"),
        ..Snapshot::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use noq_proto::congestion::{Bbr3Config, ControllerFactory, CubicConfig};
    use std::sync::Arc;
    use std::time::Instant;

    #[test]
    fn a_new_controller_is_in_startup_with_its_gains_and_without_estimates() {
        let controller = Arc::new(Bbr3Config::default()).build(Instant::now(), 1472);
        assert_eq!(state(controller.as_ref()), Some("Startup"));
        let model = snapshot(controller.as_ref()).unwrap();
        assert_eq!((model.state, model.cwnd), ("Startup", controller.window()));
        let gains = [model.pacing_gain, model.cwnd_gain].map(|gain| gain.unwrap().as_f64());
        assert!((gains[0] - 2.77).abs() < 0.01 && gains[1] == 2.0, "{gains:?}");
        assert_eq!((model.min_rtt, model.max_bw, model.inflight_longterm), (None, None, None));
    }

    #[test]
    fn other_controllers_have_no_such_state() {
        let controller = Arc::new(CubicConfig::default()).build(Instant::now(), 1472);
        assert_eq!(state(controller.as_ref()), None);
        assert_eq!(snapshot(controller.as_ref()), None);
    }

    #[test]
    fn durations_are_read_in_every_unit() {
        let fields =
            Fields("Bbr3 { a: 20.5ms, b: 1.25s, c: 833µs, d: 7ns, e: 18446744073709551615s, ".into());
        let read = ["a", "b", "c", "d", "e", "f"].map(|name| fields.span(name).map(Span::as_nanos));
        assert_eq!(read, [Some(20_500_000), Some(1_250_000_000), Some(833_000), Some(7), None, None]);
    }
}
