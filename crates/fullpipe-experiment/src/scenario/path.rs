//! The network between the two ends.

use super::Fault;
use crate::format_number::trim_zeros;
use crate::recording::{LinkRecording, PathFacts};
use fullpipe_path::{BuildContext, Limit, LinkSpec, LossSpec, Path, QueueSpec, shorthand};
use fullpipe_units::{Rate, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use fullpipe_path::Direction;

/// Links in a row in each direction.
/// A file may list them as `[[path.forward]]` and `[[path.reverse]]`, or use the short form:
/// `rate`, `rtt`, `buffer` or `queue`, and `loss` of one bottleneck in the forward direction, with
/// half of `rtt` as delay in each direction.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "PathFile")]
pub struct PathSpec {
    /// The direction of the data.
    #[serde(default)]
    pub forward: Vec<LinkSpec>,
    /// The direction of the ACKs.
    #[serde(default)]
    pub reverse: Vec<LinkSpec>,
}

/// `[path]` in the file.
#[derive(Clone, PartialEq, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PathFile {
    /// Rate of the bottleneck.
    rate: Option<Rate>,
    /// Two-way propagation delay.
    rtt: Option<Span>,
    /// Limit of the bottleneck's drop-tail queue; by default one BDP.
    buffer: Option<Limit>,
    /// Queue of the bottleneck, if it is not drop-tail.
    #[serde(default, deserialize_with = "shorthand::queue")]
    #[schemars(schema_with = "shorthand::queue_schema")]
    queue: Option<QueueSpec>,
    /// Loss behind the bottleneck.
    #[serde(default, deserialize_with = "shorthand::loss")]
    #[schemars(schema_with = "shorthand::loss_schema")]
    loss: Option<LossSpec>,
    /// Rate of the reverse path; by default unlimited.
    reverse_rate: Option<Rate>,
    /// The links of the forward direction, in the long form.
    #[serde(default)]
    forward: Vec<LinkSpec>,
    /// The links of the reverse direction, in the long form.
    #[serde(default)]
    reverse: Vec<LinkSpec>,
}

impl JsonSchema for PathSpec {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Path".into()
    }
    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        PathFile::json_schema(generator)
    }
}

impl TryFrom<PathFile> for PathSpec {
    type Error = String;

    fn try_from(file: PathFile) -> Result<Self, String> {
        let long_form = !file.forward.is_empty() || !file.reverse.is_empty();
        let short = [
            ("rate", file.rate.is_some()),
            ("rtt", file.rtt.is_some()),
            ("buffer", file.buffer.is_some()),
            ("queue", file.queue.is_some()),
            ("loss", file.loss.is_some()),
            ("reverse_rate", file.reverse_rate.is_some()),
        ];
        if long_form {
            if let Some((key, _)) = short.iter().find(|(_, used)| *used) {
                return Err(format!(
                    "`{key}` cannot be combined with [[path.forward]] or [[path.reverse]]: set it on a link"
                ));
            }
            return Ok(PathSpec { forward: file.forward, reverse: file.reverse });
        }
        if file.buffer.is_some() && file.queue.is_some() {
            return Err("`buffer` cannot be combined with `queue`: use `limit` in `queue`".into());
        }
        let delay = file.rtt.unwrap_or_default();
        Ok(PathSpec {
            forward: vec![LinkSpec {
                rate: file.rate,
                delay: delay / 2,
                queue: file.queue.or_else(|| file.buffer.map(QueueSpec::from)),
                loss: file.loss,
                ..LinkSpec::default()
            }],
            reverse: vec![LinkSpec {
                rate: file.reverse_rate,
                delay: delay - delay / 2,
                ..LinkSpec::default()
            }],
        })
    }
}

impl PathSpec {
    /// One bottleneck of `rate` with a drop-tail queue of `buffer`, and half of `rtt` in each
    /// direction.
    pub fn bottleneck(rate: Rate, rtt: Span, buffer: Limit) -> Self {
        let forward = LinkSpec {
            rate: Some(rate),
            delay: rtt / 2,
            queue: Some(QueueSpec::from(buffer)),
            ..LinkSpec::default()
        };
        PathSpec {
            forward: vec![forward],
            reverse: vec![LinkSpec { delay: rtt - rtt / 2, ..LinkSpec::default() }],
        }
    }

    /// The context to build the links of one direction with.
    pub fn context(&self, direction: Direction, mtu: u32, seed: u64) -> BuildContext {
        BuildContext::for_path(&self.forward, &self.reverse, direction, mtu, seed)
    }

    /// The links of one direction.
    pub fn links(&self, direction: Direction) -> &[LinkSpec] {
        match direction {
            Direction::Forward => &self.forward,
            Direction::Reverse => &self.reverse,
        }
    }

    pub(super) fn validate(&self, mtu: u32) -> Result<(), Fault> {
        for (name, direction) in [("forward", Direction::Forward), ("reverse", Direction::Reverse)] {
            let context = self.context(direction, mtu, 0);
            Path::<()>::new(self.links(direction), &context)
                .map_err(|e| Fault::new(&format!("{name}.{}.{}", e.link, e.key), e.reason))?;
        }
        Ok(())
    }

    /// Sets the names of link recordings from the path's links, forward ones first.
    pub fn name_links(&self, recordings: &mut [LinkRecording]) {
        for (recording, link) in recordings.iter_mut().zip(self.forward.iter().chain(&self.reverse)) {
            recording.name.clone_from(&link.name);
        }
    }

    /// The reference values for a run's figures, for packets of `mtu` bytes with `smss` bytes of
    /// payload.
    pub fn facts(&self, mtu: u32, smss: u32) -> PathFacts {
        let context = self.context(Direction::Forward, mtu, 0);
        let rate = (context.bottleneck != Rate::MAX).then_some(context.bottleneck);
        let rate_bps = rate.map(Rate::as_bits_per_sec_f64);
        PathFacts {
            rate_bps,
            goodput_limit_bps: rate_bps.map(|bps| bps * f64::from(smss) / f64::from(mtu)),
            base_rtt_ms: Some(context.base_rtt.as_millis_f64()),
            bdp_bytes: rate.map(|_| context.bdp()),
            buffer_bytes: self.buffer_bytes(&context),
            description: self.describe(),
        }
    }

    /// The link that limits the forward direction, if any link has a rate.
    fn bottleneck_link(&self) -> Option<&LinkSpec> {
        self.forward.iter().filter(|l| l.nominal_rate().is_some()).min_by_key(|l| l.nominal_rate())
    }

    /// Limit of the bottleneck's queue in bytes, if it has one.
    fn buffer_bytes(&self, context: &BuildContext) -> Option<u64> {
        let link = self.bottleneck_link()?;
        Some(match link.queue.clone().unwrap_or_default().limit() {
            Limit::Bytes(bytes) => bytes,
            Limit::Packets(packets) => packets.saturating_mul(u64::from(context.mtu)),
            Limit::Time(span) => link.nominal_rate()?.bytes_in(span),
            Limit::Bdp(times) => (context.bdp() as f64 * times) as u64,
        })
    }

    /// A one-line description of the path.
    pub fn describe(&self) -> String {
        let context = self.context(Direction::Forward, 1500, 0);
        let mut parts = Vec::new();
        if context.bottleneck != Rate::MAX {
            parts.push(context.bottleneck.to_string());
        }
        parts.push(format!("{} RTT", context.base_rtt));
        if let Some(link) = self.bottleneck_link() {
            let queue = link.queue.clone().unwrap_or_default();
            parts.push(format!("{} {}", queue.limit(), queue.kind()));
        }
        let losses = self.forward.iter().filter_map(|l| l.loss.as_ref().and_then(LossSpec::mean));
        let arrives: f64 = losses.map(|share| 1.0 - share).product();
        if arrives < 1.0 {
            parts.push(format!("{}% loss", trim_zeros(&format!("{:.4}", (1.0 - arrives) * 100.0))));
        }
        if self.forward.len() > 1 {
            parts.push(format!("{} links", self.forward.len()));
        }
        if self.forward.iter().chain(&self.reverse).any(|l| !l.schedule.is_empty()) {
            parts.push("changing".to_owned());
        }
        parts.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<PathSpec, String> {
        toml::from_str(text).map_err(|e| e.to_string())
    }

    #[test]
    fn short_form_is_a_bottleneck_and_a_reverse_path() {
        let path = read("rate='100mbit'\nrtt='101ms'\nbuffer='64k'\nloss='1%'").unwrap();
        assert_eq!(path.forward.len(), 1);
        let facts = path.facts(1500, 1448);
        assert_eq!(facts.base_rtt_ms, Some(101.0));
        assert_eq!(facts.bdp_bytes, Some(1_262_500));
        assert_eq!(facts.buffer_bytes, Some(65_536));
        assert!(facts.description.starts_with("100mbit, 101ms RTT"), "{}", facts.description);
        assert!(facts.description.ends_with("1% loss"), "{}", facts.description);
    }

    #[test]
    fn short_and_long_form_cannot_be_combined() {
        let e = read("rate='100mbit'\n[[forward]]\ndelay='1ms'").unwrap_err();
        assert!(e.contains("`rate`") && e.contains("path.forward"), "{e}");
        let e = read("buffer='1bdp'\nqueue='drop-tail'").unwrap_err();
        assert!(e.contains("limit"), "{e}");
    }

    #[test]
    fn path_survives_a_round_trip_through_toml() {
        let path = read("rate='10mbit'\nrtt='40ms'\nloss='0.1%'").unwrap();
        let text = toml::to_string(&path).unwrap();
        assert_eq!(read(&text).unwrap(), path);
    }
}
