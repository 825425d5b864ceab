//! The counts of a node as metrics, by pair and controller.

use fullpipe_live::export::{Family, Metric, Sample};
use fullpipe_mesh::file::Mesh;
use fullpipe_mesh::node::{PairTally, ProbeTally, Tally};
use fullpipe_mesh::record::{Measurement, SiteId};

const DONE: Metric = Metric::counter("fullpipe_probe_transfers_done", "Transfers that succeeded.", "");
const FAILED: Metric =
    Metric::counter("fullpipe_probe_transfers_failed", "Transfers that failed, by reason.", "");
const UP: Metric = Metric::gauge("fullpipe_probe_up", "Whether the last transfer succeeded.", "");
const PROBE_RTT: Metric = Metric::gauge(
    "fullpipe_probe_small_rtt_seconds",
    "RTT of the small probes of the last minute.",
    "seconds",
);

/// A metric, and how to read its value.
type Reading<T, N> = (Metric, fn(&T) -> N);

/// Totals of the transfers to a site by a controller.
const TRANSFERS: [Reading<PairTally, u64>; 3] = [
    (
        Metric::counter(
            "fullpipe_probe_payload_bytes",
            "Payload bytes of transfers that succeeded.",
            "bytes",
        ),
        |pair| pair.bytes,
    ),
    (Metric::counter("fullpipe_probe_segments", "Segments sent.", ""), |pair| pair.segments),
    (Metric::counter("fullpipe_probe_segments_retransmitted", "Segments retransmitted.", ""), |pair| {
        pair.retransmitted
    }),
];

/// Results of the last transfer that succeeded.
const LAST_TRANSFER_METRICS: [Reading<Measurement, Option<f64>>; 5] = [
    (Metric::gauge("fullpipe_probe_goodput_bits_per_second", "Goodput of the last transfer.", ""), |m| {
        Some(m.goodput().as_bits_per_sec_f64())
    }),
    (
        Metric::gauge(
            "fullpipe_probe_delivery_rate_bits_per_second",
            "Delivery rate of the last transfer.",
            "",
        ),
        |m| m.delivery_rate.map(|rate| rate.as_bits_per_sec_f64()),
    ),
    (Metric::gauge("fullpipe_probe_duration_seconds", "Duration of the last transfer.", "seconds"), |m| {
        Some(m.duration.as_secs_f64())
    }),
    (Metric::gauge("fullpipe_probe_rtt_seconds", "RTT at the end of the last transfer.", "seconds"), |m| {
        Some(m.rtt.as_secs_f64())
    }),
    (Metric::gauge("fullpipe_probe_min_rtt_seconds", "Minimum RTT of the connection.", "seconds"), |m| {
        Some(m.min_rtt.as_secs_f64())
    }),
];

/// Totals of the small probes to a site.
const PROBE_METRICS: [Reading<ProbeTally, u64>; 3] = [
    (Metric::counter("fullpipe_probe_small_sent", "Small probes sent.", ""), |probes| probes.sent),
    (Metric::counter("fullpipe_probe_small_arrived", "Small probes that arrived.", ""), |probes| {
        probes.arrived
    }),
    (Metric::counter("fullpipe_probe_small_answered", "Small probes whose reply arrived.", ""), |probes| {
        probes.answered
    }),
];

/// Totals of the node itself.
const NODE: [Reading<Tally, u64>; 4] = [
    (Metric::gauge("fullpipe_probe_budget_bytes", "Byte budget per day.", "bytes"), |tally| tally.budget),
    (Metric::gauge("fullpipe_probe_spent_bytes", "Bytes of the budget used today.", "bytes"), |tally| {
        tally.spent
    }),
    (Metric::counter("fullpipe_probe_records_lost", "Records that could not be stored.", ""), |tally| {
        tally.lost
    }),
    (Metric::counter("fullpipe_probe_callers_rejected", "Connections rejected.", ""), |tally| tally.rejected),
];

pub fn families(mesh: &Mesh, site: SiteId, tally: &Tally) -> Vec<Family> {
    let view = View { mesh, site, tally };
    let mut families = vec![
        DONE.family(view.by_transfer(|pair| Some(pair.done as f64))),
        FAILED.family(view.failed()),
        UP.family(view.by_transfer(|pair| {
            (pair.last.is_some() || pair.error.is_some()).then(|| f64::from(u8::from(pair.error.is_none())))
        })),
    ];
    families.extend(
        TRANSFERS
            .iter()
            .map(|(metric, read)| metric.family(view.by_transfer(|pair| Some(read(pair) as f64)))),
    );
    families.extend(
        LAST_TRANSFER_METRICS
            .iter()
            .map(|(metric, read)| metric.family(view.by_transfer(|pair| pair.last.as_ref().and_then(read)))),
    );
    families.extend(PROBE_METRICS.iter().map(|(metric, read)| {
        metric.family(
            tally.probes.iter().map(|(to, probes)| Sample::number(view.ends(*to), read(probes) as f64)),
        )
    }));
    families.push(PROBE_RTT.family(view.probe_rtts()));
    families.extend(
        NODE.iter().map(|(metric, read)| metric.family([Sample::number(Vec::new(), read(tally) as f64)])),
    );
    families
}

type Labels = Vec<(&'static str, String)>;

/// The counts of a node, with the names of sites and controllers.
struct View<'a> {
    mesh: &'a Mesh,
    site: SiteId,
    tally: &'a Tally,
}

impl View<'_> {
    fn ends(&self, to: SiteId) -> Labels {
        let name = |id: SiteId| self.mesh.sites[usize::from(id)].name.clone();
        vec![("from", name(self.site)), ("to", name(to))]
    }

    fn labels(&self, to: SiteId, controller: u16) -> Labels {
        let mut labels = self.ends(to);
        labels.push(("controller", self.mesh.controllers[usize::from(controller)].clone()));
        labels
    }

    /// A value per destination and controller, where there is one.
    fn by_transfer(&self, value: impl Fn(&PairTally) -> Option<f64>) -> impl Iterator<Item = Sample> {
        let transfers = self.tally.transfers.iter();
        transfers
            .filter_map(move |((to, cc), pair)| Some(Sample::number(self.labels(*to, *cc), value(pair)?)))
    }

    fn failed(&self) -> impl Iterator<Item = Sample> {
        self.tally.transfers.iter().flat_map(|((to, cc), pair)| {
            pair.failed.iter().map(|(error, n)| {
                let mut labels = self.labels(*to, *cc);
                labels.push(("error", error.name().to_owned()));
                Sample::number(labels, *n as f64)
            })
        })
    }

    fn probe_rtts(&self) -> impl Iterator<Item = Sample> {
        self.tally.probes.iter().filter_map(|(to, probes)| Some((*to, probes.rtt?))).flat_map(|(to, band)| {
            [("0", band.min), ("0.5", band.p50), ("0.95", band.p95), ("1", band.max)].map(
                |(quantile, span)| {
                    let mut labels = self.ends(to);
                    labels.push(("quantile", quantile.to_owned()));
                    Sample::number(labels, span.as_secs_f64())
                },
            )
        })
    }
}
