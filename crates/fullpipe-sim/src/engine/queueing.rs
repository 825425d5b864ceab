//! How long data packets wait in queues: what their way through the path takes beyond propagation and
//! transmission. Where delays vary by themselves, the queue at the bottleneck is looked at instead.

use super::access::Access;
use fullpipe_cc::{Span, Time};
use fullpipe_path::{LinkSpec, LinkStats, Path};
use fullpipe_units::Rate;

#[derive(Debug)]
pub(crate) enum Queueing {
    /// Constant delays: what the way of a packet of a full MTU takes when all queues are empty, and
    /// what each byte less saves, in 2⁻²⁰ ns.
    Transit { empty: Span, mtu: u32, per_byte: u64 },
    /// Varying delays: what the longest queue was when last looked at.
    Observed(Span),
}

impl Queueing {
    /// For packets of up to `mtu` bytes over `links`, whose constants the engine does not change.
    pub fn new<T>(links: &[LinkSpec], path: &Path<T>, mtu: u32, changed: bool) -> Self {
        // Anything else that a link can have may hold packets up outside of its queue.
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

    /// Looks at the queues, if that is needed.
    #[inline]
    pub fn observe<T>(&mut self, path: &Path<T>) {
        if let Queueing::Observed(longest) = self {
            let delays = path.stats().map(LinkStats::queue_delay).filter(|&d| d < Span::MAX);
            *longest = delays.max().unwrap_or(Span::ZERO);
        }
    }

    /// How long the packet of `bytes` that was sent at `sent` and arrives at `now` has waited.
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

    /// What of that a packet of `bytes` is on the flow's own link anyhow.
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
