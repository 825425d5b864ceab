//! What a node has seen, as metrics: by pair and controller.

use fullpipe_live::export::{Family, Metric, Sample};
use fullpipe_mesh::file::Mesh;
use fullpipe_mesh::node::{PairTally, ProbeTally, Tally};
use fullpipe_mesh::record::{Measurement, SiteId};

const DONE: Metric = Metric::counter("fullpipe_probe_transfers_done", "Transfers that arrived.", "");
const FAILED: Metric = Metric::counter(
    "fullpipe_probe_transfers_failed",
    "Transfers that did not arrive, by what was wrong.",
    "",
);
const UP: Metric = Metric::gauge("fullpipe_probe_up", "Whether the last transfer arrived.", "");
const PROBE_RTT: Metric = Metric::gauge(
    "fullpipe_probe_small_rtt_seconds",
    "Round trips of the last minute's small probes.",
    "seconds",
);

/// A metric, and its value of what was seen.
type MetricOf<T, N> = (Metric, fn(&T) -> N);

/// Of the transfers to a site by a controller.
const TRANSFER_METRICS: [MetricOf<PairTally, u64>; 3] = [
    (Metric::counter("fullpipe_probe_payload_bytes", "Payload of transfers that arrived.", "bytes"), |of| {
        of.bytes
    }),
    (Metric::counter("fullpipe_probe_segments", "Segments sent.", ""), |of| of.segments),
    (Metric::counter("fullpipe_probe_segments_retransmitted", "Segments sent again.", ""), |of| {
        of.retransmitted
    }),
];

/// Of the last transfer that arrived.
const LAST_TRANSFER_METRICS: [MetricOf<Measurement, Option<f64>>; 5] = [
    (
        Metric::gauge(
            "fullpipe_probe_goodput_bits_per_second",
            "Payload of the last transfer over its time.",
            "",
        ),
        |m| Some(m.goodput().as_bits_per_sec_f64()),
    ),
    (
        Metric::gauge(
            "fullpipe_probe_delivery_rate_bits_per_second",
            "Delivery rate of the last transfer.",
            "",
        ),
        |m| m.delivery_rate.map(|rate| rate.as_bits_per_sec_f64()),
    ),
    (Metric::gauge("fullpipe_probe_duration_seconds", "Time that the last transfer took.", "seconds"), |m| {
        Some(m.duration.as_secs_f64())
    }),
    (
        Metric::gauge("fullpipe_probe_rtt_seconds", "Round trip at the end of the last transfer.", "seconds"),
        |m| Some(m.rtt.as_secs_f64()),
    ),
    (
        Metric::gauge("fullpipe_probe_min_rtt_seconds", "Least round trip of the connection.", "seconds"),
        |m| Some(m.min_rtt.as_secs_f64()),
    ),
];

/// Of the small probes to a site.
const PROBE_METRICS: [MetricOf<ProbeTally, u64>; 3] = [
    (Metric::counter("fullpipe_probe_small_sent", "Small probes sent.", ""), |of| of.sent),
    (Metric::counter("fullpipe_probe_small_arrived", "Small probes that arrived.", ""), |of| of.arrived),
    (Metric::counter("fullpipe_probe_small_answered", "Small probes whose answer came back.", ""), |of| {
        of.answered
    }),
];

/// Of the node itself.
const NODE_METRICS: [MetricOf<Tally, u64>; 4] = [
    (Metric::gauge("fullpipe_probe_budget_bytes", "Bytes that may be moved in a day.", "bytes"), |tally| {
        tally.budget
    }),
    (Metric::gauge("fullpipe_probe_spent_bytes", "Bytes of the day that were moved.", "bytes"), |tally| {
        tally.spent
    }),
    (Metric::counter("fullpipe_probe_records_lost", "Records that could not be kept.", ""), |tally| {
        tally.lost
    }),
    (Metric::counter("fullpipe_probe_callers_rejected", "Connections that were not let in.", ""), |tally| {
        tally.rejected
    }),
];

pub fn families(mesh: &Mesh, site: SiteId, tally: &Tally) -> Vec<Family> {
    let labelled = Labelled { mesh, site, tally };
    let mut families = vec![
        DONE.of(labelled.by_transfer(|of| Some(of.done as f64))),
        FAILED.of(labelled.failed()),
        UP.of(labelled.by_transfer(|of| {
            (of.last.is_some() || of.error.is_some()).then(|| f64::from(u8::from(of.error.is_none())))
        })),
    ];
    families.extend(
        TRANSFER_METRICS
            .iter()
            .map(|(metric, of)| metric.of(labelled.by_transfer(|pair| Some(of(pair) as f64)))),
    );
    families.extend(
        LAST_TRANSFER_METRICS
            .iter()
            .map(|(metric, of)| metric.of(labelled.by_transfer(|pair| pair.last.as_ref().and_then(of)))),
    );
    families.extend(PROBE_METRICS.iter().map(|(metric, of)| {
        metric
            .of(tally.probes.iter().map(|(to, probes)| Sample::number(labelled.ends(*to), of(probes) as f64)))
    }));
    families.push(PROBE_RTT.of(labelled.probe_rtts()));
    families.extend(
        NODE_METRICS.iter().map(|(metric, of)| metric.of([Sample::number(Vec::new(), of(tally) as f64)])),
    );
    families
}

type Labels = Vec<(&'static str, String)>;

/// What a node has seen, and what its sites and controllers are called.
struct Labelled<'a> {
    mesh: &'a Mesh,
    site: SiteId,
    tally: &'a Tally,
}

impl Labelled<'_> {
    fn ends(&self, to: SiteId) -> Labels {
        let name = |id: SiteId| self.mesh.sites[usize::from(id)].name.clone();
        vec![("from", name(self.site)), ("to", name(to))]
    }

    fn labels(&self, to: SiteId, controller: u16) -> Labels {
        let mut labels = self.ends(to);
        labels.push(("controller", self.mesh.controllers[usize::from(controller)].clone()));
        labels
    }

    /// A number of the transfers to each site by each controller, where there is one.
    fn by_transfer(&self, value: impl Fn(&PairTally) -> Option<f64>) -> impl Iterator<Item = Sample> {
        let transfers = self.tally.transfers.iter();
        transfers.filter_map(move |((to, cc), of)| Some(Sample::number(self.labels(*to, *cc), value(of)?)))
    }

    fn failed(&self) -> impl Iterator<Item = Sample> {
        self.tally.transfers.iter().flat_map(|((to, cc), of)| {
            of.failed.iter().map(|(error, n)| {
                let mut labels = self.labels(*to, *cc);
                labels.push(("error", error.name().to_owned()));
                Sample::number(labels, *n as f64)
            })
        })
    }

    fn probe_rtts(&self) -> impl Iterator<Item = Sample> {
        self.tally.probes.iter().filter_map(|(to, of)| Some((*to, of.rtt?))).flat_map(|(to, band)| {
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
