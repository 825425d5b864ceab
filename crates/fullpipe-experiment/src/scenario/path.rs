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
///
/// A file may write them out as `[[path.forward]]` and `[[path.reverse]]`, or say what most paths
/// need in short: `rate`, `rtt`, `buffer` or `queue`, and `loss` of one bottleneck in the forward
/// direction, with half of `rtt` as delay each way.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(try_from = "PathFile")]
pub struct PathSpec {
    /// The way of the data.
    #[serde(default)]
    pub forward: Vec<LinkSpec>,
    /// The way back of the ACKs.
    #[serde(default)]
    pub reverse: Vec<LinkSpec>,
}

/// `[path]` as written.
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
    /// Rate of the way back; by default without limit.
    reverse_rate: Option<Rate>,
    /// The links of the forward direction, written out.
    #[serde(default)]
    forward: Vec<LinkSpec>,
    /// The links of the reverse direction, written out.
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
        let written_out = !file.forward.is_empty() || !file.reverse.is_empty();
        let short = [
            ("rate", file.rate.is_some()),
            ("rtt", file.rtt.is_some()),
            ("buffer", file.buffer.is_some()),
            ("queue", file.queue.is_some()),
            ("loss", file.loss.is_some()),
            ("reverse_rate", file.reverse_rate.is_some()),
        ];
        if written_out {
            if let Some((key, _)) = short.iter().find(|(_, used)| *used) {
                return Err(format!(
                    "`{key}` is short for a link: write it in [[path.forward]] or [[path.reverse]] instead, which are there"
                ));
            }
            return Ok(PathSpec { forward: file.forward, reverse: file.reverse });
        }
        if file.buffer.is_some() && file.queue.is_some() {
            return Err(
                "`buffer` is the limit of a drop-tail queue: write it as `limit` in `queue`, which is there"
                    .into(),
            );
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
    /// One bottleneck of `rate` with a drop-tail queue of `buffer`, and half of `rtt` each way.
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

    /// What a chain of one of its directions is built with.
    pub fn context(&self, direction: Direction, mtu: u32, seed: u64) -> BuildContext {
        BuildContext::of_path(&self.forward, &self.reverse, direction, mtu, seed)
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

    /// Gives the recordings of its links, forward ones first, the names that it has for them.
    pub fn name_links(&self, recordings: &mut [LinkRecording]) {
        for (recording, link) in recordings.iter_mut().zip(self.forward.iter().chain(&self.reverse)) {
            recording.name.clone_from(&link.name);
        }
    }

    /// The constants that a run's figures are held against, for packets of `mtu` bytes of which
    /// `smss` are payload.
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

    /// The path in words.
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
    fn a_short_path_is_a_bottleneck_and_a_way_back() {
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
    fn short_and_written_out_do_not_mix() {
        let e = read("rate='100mbit'\n[[forward]]\ndelay='1ms'").unwrap_err();
        assert!(e.contains("`rate`") && e.contains("path.forward"), "{e}");
        let e = read("buffer='1bdp'\nqueue='drop-tail'").unwrap_err();
        assert!(e.contains("limit"), "{e}");
    }

    #[test]
    fn what_a_path_writes_of_itself_makes_it_again() {
        let path = read("rate='10mbit'\nrtt='40ms'\nloss='0.1%'").unwrap();
        let text = toml::to_string(&path).unwrap();
        assert_eq!(read(&text).unwrap(), path);
    }
}
