//! What a node has seen, as metrics: by pair and controller.

use fullpipe_live::export::{Family, Kind};
use fullpipe_mesh::file::Mesh;
use fullpipe_mesh::node::{PairTally, Tally};
use fullpipe_mesh::record::{Measured, SiteId};

pub fn families(mesh: &Mesh, site: SiteId, tally: &Tally) -> Vec<Family> {
    let name = |id: SiteId| mesh.sites[usize::from(id)].name.clone();
    let ends = |to: SiteId| vec![("from", name(site)), ("to", name(to))];
    let labels = |to: SiteId, controller: u16| {
        let mut labels = ends(to);
        labels.push(("controller", mesh.controllers[usize::from(controller)].clone()));
        labels
    };
    let by_transfer = |name: &str, help, unit, kind, value: &dyn Fn(&PairTally) -> Option<f64>| {
        tally.transfers.iter().fold(Family::empty(name, help, unit, kind), |family, ((to, cc), of)| {
            match value(of) {
                Some(value) => family.and(labels(*to, *cc), value),
                None => family,
            }
        })
    };
    let last = |name: &str, help, unit, value: &dyn Fn(&Measured) -> Option<f64>| {
        by_transfer(name, help, unit, Kind::Gauge, &|of| of.last.as_ref().and_then(value))
    };
    let mut failed = Family::empty(
        "fullpipe_probe_transfers_failed",
        "Transfers that did not arrive, by what was wrong.",
        "",
        Kind::Counter,
    );
    for ((to, cc), of) in &tally.transfers {
        for (trouble, n) in &of.failed {
            let mut labels = labels(*to, *cc);
            labels.push(("trouble", trouble.name().to_owned()));
            failed = failed.and(labels, *n as f64);
        }
    }
    let mut families = vec![
        by_transfer("fullpipe_probe_transfers_done", "Transfers that arrived.", "", Kind::Counter, &|of| {
            Some(of.done as f64)
        }),
        failed,
        by_transfer("fullpipe_probe_up", "Whether the last transfer arrived.", "", Kind::Gauge, &|of| {
            (of.last.is_some() || of.trouble.is_some()).then(|| f64::from(u8::from(of.trouble.is_none())))
        }),
        by_transfer(
            "fullpipe_probe_payload_bytes",
            "Payload of transfers that arrived.",
            "bytes",
            Kind::Counter,
            &|of| Some(of.bytes as f64),
        ),
        by_transfer("fullpipe_probe_segments", "Segments sent.", "", Kind::Counter, &|of| {
            Some(of.segments as f64)
        }),
        by_transfer(
            "fullpipe_probe_segments_retransmitted",
            "Segments sent again.",
            "",
            Kind::Counter,
            &|of| Some(of.retransmitted as f64),
        ),
        last(
            "fullpipe_probe_goodput_bits_per_second",
            "Payload of the last transfer over its time.",
            "",
            &|m| Some(m.goodput().as_bits_per_sec_f64()),
        ),
        last(
            "fullpipe_probe_delivery_rate_bits_per_second",
            "Delivery rate of the last transfer.",
            "",
            &|m| m.delivery_rate.map(|rate| rate.as_bits_per_sec_f64()),
        ),
        last("fullpipe_probe_duration_seconds", "Time that the last transfer took.", "seconds", &|m| {
            Some(m.duration.as_secs_f64())
        }),
        last("fullpipe_probe_rtt_seconds", "Round trip at the end of the last transfer.", "seconds", &|m| {
            Some(m.rtt.as_secs_f64())
        }),
        last("fullpipe_probe_min_rtt_seconds", "Least round trip of the connection.", "seconds", &|m| {
            Some(m.min_rtt.as_secs_f64())
        }),
    ];
    let small = |name: &str, help, value: &dyn Fn(&fullpipe_mesh::node::ProbeTally) -> u64| {
        tally.probes.iter().fold(Family::empty(name, help, "", Kind::Counter), |family, (to, of)| {
            family.and(ends(*to), value(of) as f64)
        })
    };
    families.extend([
        small("fullpipe_probe_small_sent", "Small probes sent.", &|of| of.sent),
        small("fullpipe_probe_small_arrived", "Small probes that arrived.", &|of| of.arrived),
        small("fullpipe_probe_small_answered", "Small probes whose answer came back.", &|of| of.answered),
    ]);
    let mut rtt = Family::empty(
        "fullpipe_probe_small_rtt_seconds",
        "Round trips of the last minute's small probes.",
        "seconds",
        Kind::Gauge,
    );
    for (to, of) in &tally.probes {
        let Some(band) = of.rtt else { continue };
        for (quantile, span) in [("0", band.min), ("0.5", band.p50), ("0.95", band.p95), ("1", band.max)] {
            let mut labels = ends(*to);
            labels.push(("quantile", quantile.to_owned()));
            rtt = rtt.and(labels, span.as_secs_f64());
        }
    }
    families.push(rtt);
    let count = |name: &str, help, unit, value: u64, kind| Family {
        kind,
        ..Family::gauge(name, help, unit, value as f64)
    };
    families.extend([
        count(
            "fullpipe_probe_budget_bytes",
            "Bytes that may be moved in a day.",
            "bytes",
            tally.budget,
            Kind::Gauge,
        ),
        count(
            "fullpipe_probe_spent_bytes",
            "Bytes of the day that were moved.",
            "bytes",
            tally.spent,
            Kind::Gauge,
        ),
        count(
            "fullpipe_probe_records_lost",
            "Records that could not be kept.",
            "",
            tally.lost,
            Kind::Counter,
        ),
        count(
            "fullpipe_probe_callers_rejected",
            "Connections that were not let in.",
            "",
            tally.rejected,
            Kind::Counter,
        ),
    ]);
    families
}
