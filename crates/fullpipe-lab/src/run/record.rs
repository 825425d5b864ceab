//! The end of a run: builds the recording, and judges whether the machine kept up.

use super::Inside;
use super::sampling::SampledRun;
use crate::emulator::{EmulatorReport, LinkReport, Views};
use crate::flow::{FlowReport, Registry};
use crate::health::{self, KEEPS_UP_BELOW, Verdict};
use fullpipe_experiment::recording::{Histogram, Provenance, Recording, Source, Summary};
use fullpipe_experiment::scenario::{HEADER_BYTES, Scenario};
use fullpipe_path::DropCause;
use fullpipe_units::{Span, Time};

impl Inside<'_> {
    pub(super) fn record(
        mut self,
        mut ran: SampledRun,
        report: EmulatorReport,
        registry: &Registry,
        views: &Views,
        started: u64,
    ) -> Recording {
        let scenario = self.scenario;
        let warmup = Time::ZERO + scenario.warmup;
        let headers = HEADER_BYTES + if self.start_options.ipv6 { 20 } else { 0 };
        let path = scenario.path.facts(scenario.mtu, scenario.mtu.saturating_sub(headers).max(1));
        let utilization = |bps: f64| path.goodput_limit_bps.filter(|&l| l > 0.0).map(|l| bps / l);
        let samplers = std::mem::take(&mut ran.samplers).into_iter();
        let mut flows: Vec<FlowReport> =
            samplers.map(|s| s.finish(registry, views, warmup, ran.end)).collect();
        for flow in &mut flows {
            flow.recording.summary.utilization = utilization(flow.recording.summary.goodput_bps);
        }
        let mut summary = total(&flows, warmup, ran.end);
        summary.utilization = utilization(summary.goodput_bps);
        let base_rtt = Span::from_secs_f64(path.base_rtt_ms.unwrap_or_default() / 1e3);
        let Verdict { health, invalid_because } = self.judge(&flows, ran, &report, base_rtt);
        let mut links: Vec<_> = report.links.into_iter().map(|l| l.recording).collect();
        scenario.path.name_links(&mut links);
        Recording {
            label: scenario.cc(),
            contender: None,
            varied: Vec::new(),
            source: Source::Lab,
            cc: scenario.cc(),
            seed: self.seed,
            valid: invalid_because.is_empty(),
            invalid_because,
            summary,
            fairness: None,
            flows: flows.into_iter().map(|f| f.recording).collect(),
            links,
            path,
            checks: Vec::new(),
            health: Some(health),
            provenance: provenance(scenario, self.seed, started),
        }
    }

    /// How well the machine kept up with the run, and why the run is invalid if it did not. Other
    /// findings go to the notes.
    fn judge(
        &mut self,
        flows: &[FlowReport],
        ran: SampledRun,
        report: &EmulatorReport,
        base_rtt: Span,
    ) -> Verdict {
        let mut notes = std::mem::take(&mut self.notes);
        let with_problems = flows.iter().filter_map(|flow| Some((flow, flow.problem.as_ref()?)));
        notes.extend(with_problems.map(|(flow, problem)| format!("{}: {problem}", flow.recording.label)));
        let ran_for = ran.end.since(Time::ZERO);
        let stray = self.topology.dropped_by_interfaces();
        let Verdict { mut health, mut invalid_because } =
            health::judge(&report.audit, stray, base_rtt, ran_for);
        invalid_because.extend(flows.iter().filter_map(|flow| health::late_start(flow, ran_for)));
        // On paths about as fast as the machine, TCP waits for the ends: the result is that of this
        // machine.
        let keeps_up = self.scenario.highest_rate().is_some_and(|rate| rate < KEEPS_UP_BELOW);
        let judged = if keeps_up { &mut invalid_because } else { &mut notes };
        judged.extend(flows.iter().filter_map(health::starved));
        health.waits = ran.waits.map(|waits| waits.finish(report.audit.waited, ran_for));
        judged.extend(health.waits.iter().flat_map(health::waited));
        let overflowed = shortest_overflow(self.scenario, report);
        judged.extend(
            health.waits.iter().zip(overflowed).filter_map(|(waits, queue)| health::burst(waits, queue)),
        );
        let late = ran.late.value_at_quantile(0.99) as f64 / 1e6;
        if late > self.scenario.sample.as_millis_f64().max(10.0) {
            notes.push(format!(
                "the sampler was late (p99 {late:.1} ms): the ends may have lacked processor time, too"
            ));
        }
        let bad = self.topology.checksum_errors();
        if bad > 0 {
            invalid_because
                .push(format!("{bad} packets arrived with a wrong checksum: a bug in the emulator"));
        }
        let threads = report.threads;
        notes.push(format!("emulator in {threads} thread{}", if threads == 1 { "" } else { "s" }));
        health.notes = notes;
        Verdict { health, invalid_because }
    }
}

/// The shortest drain time of the queues that overflowed; `None` if all flows are paced.
fn shortest_overflow(scenario: &Scenario, report: &EmulatorReport) -> Option<Span> {
    // Of the kernel's controllers only BBR, of any version, sets a pacing rate.
    if scenario.flows.iter().all(|flow| flow.paced || flow.cc.contains("bbr")) {
        return None;
    }
    let rate = scenario.highest_rate()?;
    let overflowed = |link: &&LinkReport| {
        link.recording.drops.get(DropCause::QueueFull.name()).is_some_and(|dropped| *dropped > 0)
    };
    report.links.iter().filter(overflowed).map(|link| rate.time_to_send(link.max_queue_bytes)).min()
}

/// The provenance of the recording, from which it can be reproduced; the run started at `started`,
/// in seconds since 1970.
fn provenance(scenario: &Scenario, seed: u64, started: u64) -> Provenance {
    Provenance {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        scenario: Scenario { seed, repeats: 1, ..scenario.clone() }.to_toml(),
        kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease").ok().map(|r| r.trim().to_owned()),
        ticks: fullpipe_kernel::facts::tick_rate(),
        bbr_versions: fullpipe_kernel::tcp_info::bbr_versions(),
        started: Some(fullpipe_experiment::calendar::rfc3339(started)),
        draft: None,
        transports: Vec::new(),
        processing: None,
    }
}

/// All flows together.
fn total(flows: &[FlowReport], warmup: Time, end: Time) -> Summary {
    let last = flows.iter().map(|f| f.end).max().unwrap_or(end);
    let mut total =
        Summary::total(flows.iter().map(|f| &f.recording.summary), last.since(warmup).as_secs_f64());
    let (mut rtt, mut queue) = (Histogram::default(), Histogram::default());
    for distributions in flows.iter().filter_map(|f| f.recording.distributions.as_deref()) {
        rtt.merge(&distributions.rtt);
        queue.merge(&distributions.queue);
    }
    (total.rtt_ms, total.queue_ms) = (rtt.rtt_ms(), queue.queue_ms());
    total
}
