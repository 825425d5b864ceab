//! Queueing delay of data packets: their transit time beyond propagation and transmission. On paths
//! whose delay varies for other reasons, the longest queue's delay is sampled instead.

use super::access::Access;
use fullpipe_cc::{Span, Time};
use fullpipe_path::{LinkSpec, LinkStats, Path};
use fullpipe_units::Rate;

#[derive(Debug)]
pub(crate) enum Queueing {
    /// Constant delays: transit time of a full-MTU packet through empty queues, and how much less
    /// each missing byte takes, in 2⁻²⁰ ns.
    Transit { empty: Span, mtu: u32, per_byte: u64 },
    /// Varying delays: the longest queue's delay when last sampled.
    Observed(Span),
}

impl Queueing {
    /// The model for packets of up to `mtu` bytes over `links`; `changed` if triggers change them.
    pub fn new<T>(links: &[LinkSpec], path: &Path<T>, mtu: u32, changed: bool) -> Self {
        // Any other feature of a link can delay packets outside its queue.
        let plain = |link: &LinkSpec| {
            LinkSpec {
                rate: link.rate,
                delay: link.delay,
                queue: link.queue.clone(),
                loss: link.loss.clone(),
                ingress_loss: link.ingress_loss.clone(),
                policer: link.policer,
                name: link.name.clone(),
                ..LinkSpec::default()
            } == *link
        };
        if changed || !links.iter().all(plain) {
            return Queueing::Observed(Span::ZERO);
        }
        let empty = path.stats().fold(Span::ZERO, |sum, link| sum + link.delay + sending(link, mtu));
        let per_byte = links
            .iter()
            .filter_map(|l| l.rate)
            .map(|r| (1_000_000_000u64 << 20).checked_div(r.as_bytes_per_sec()).unwrap_or(0))
            .fold(0, u64::saturating_add);
        Queueing::Transit { empty, mtu, per_byte }
    }

    /// Samples the queues, if the model needs it.
    #[inline]
    pub fn observe<T>(&mut self, path: &Path<T>) {
        if let Queueing::Observed(longest) = self {
            let delays = path.stats().map(LinkStats::queue_delay).filter(|&d| d < Span::MAX);
            *longest = delays.max().unwrap_or(Span::ZERO);
        }
    }

    /// Queueing delay of a packet of `bytes` that was sent at `sent` and arrived at `now`.
    #[inline]
    pub fn of_packet(&self, sent: Time, now: Time, bytes: u32) -> Span {
        match *self {
            Queueing::Transit { empty, mtu, per_byte } => {
                let shorter =
                    Span::from_nanos(u64::from(mtu - bytes.min(mtu)).saturating_mul(per_byte) >> 20);
                now.since(sent) - (empty - shorter)
            }
            Queueing::Observed(longest) => longest,
        }
    }

    /// The part of that which a packet of `bytes` spends on the flow's empty access link.
    #[inline]
    pub fn outside(&self, access: Option<&Access>, bytes: u32) -> Span {
        match (self, access) {
            (Queueing::Transit { .. }, Some(access)) => access.alone(bytes),
            _ => Span::ZERO,
        }
    }
}

fn sending(link: &LinkStats, bytes: u32) -> Span {
    if link.rate == Rate::MAX { Span::ZERO } else { link.rate.time_to_send(u64::from(bytes)) }
}
