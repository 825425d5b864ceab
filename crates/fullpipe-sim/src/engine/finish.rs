//! The end of a run: turns its counters into a recording.

use super::access::Access;
use super::connection::Connection;
use super::world::World;
use crate::controllers::AnyController;
use crate::recorder::{FlowRecorder, total};
use crate::sender::SenderEvent;
use fullpipe_cc::Time;
use fullpipe_experiment::recording::{FlowRecording, LinkRecording, Provenance, Recording, Source, Summary};
use fullpipe_experiment::scenario::Scenario;

/// What a connection leaves for its recording.
struct Ended {
    recorder: FlowRecorder,
    events: Vec<SenderEvent>,
    access: Option<Box<Access>>,
    start: Time,
    end: Time,
    summary: Summary,
}

impl Ended {
    /// Of a run with a warm-up until `warmup` that ended at `end`.
    fn new(mut c: Connection<AnyController>, warmup: Time, end: Time) -> Self {
        c.recorder.settle();
        let duration = c.end(end).since(c.start.max(warmup));
        let completion = c.completed().map(|at| at.since(c.start));
        Ended {
            summary: c.recorder.summary(&c.telemetry(), c.arrived(), duration, completion),
            end: c.end(end),
            // A flow whose start condition never came true starts at the end.
            start: c.start.min(end),
            recorder: c.recorder,
            events: c.sender.events,
            access: c.access,
        }
    }
}

impl World {
    /// The recording of the run, its checks not yet judged.
    pub fn finish(self) -> Recording {
        let path = self.scenario.path.facts(self.scenario.mtu, self.scenario.smss());
        let controllers: Vec<String> = self.controllers().map(str::to_owned).collect();
        let World { scenario, seed, forward, reverse, flows, labels, end, .. } = self;
        let directions = [("forward", forward), ("reverse", reverse)];
        let links = directions.into_iter().flat_map(|(name, way)| {
            way.into_recorders()
                .enumerate()
                .map(move |(i, (recorder, stats))| recorder.finish(format!("{name} {}", i + 1), &stats))
        });
        let mut links: Vec<LinkRecording> = links.collect();
        scenario.path.name_links(&mut links);
        let transports = flows.transports;
        // Most of a connection's memory is not needed for its recording: with many flows it is freed before
        // the recordings need as much, and reused for what is needed.
        let warmup = Time::ZERO + scenario.warmup;
        let connections = flows.connections.into_iter();
        let mut ended: Vec<Box<Ended>> = connections.map(|c| Box::new(Ended::new(c, warmup, end))).collect();
        let utilization = |bps: f64| path.goodput_limit_bps.filter(|&l| l > 0.0).map(|l| bps / l);
        for flow in &mut ended {
            flow.summary.utilization = utilization(flow.summary.goodput_bps);
        }
        let last = ended.iter().map(|flow| flow.end).max().unwrap_or(end);
        let mut summary = total(ended.iter().map(|flow| (&flow.summary, &flow.recorder)), last.since(warmup));
        summary.utilization = utilization(summary.goodput_bps);
        let flows: Vec<FlowRecording> = ended
            .into_iter()
            .zip(labels.into_iter().zip(controllers))
            .map(|(flow, (label, cc))| {
                let Ended { recorder, events, access, start, summary, .. } = *flow;
                links.extend(access.and_then(|access| access.finish(&label)));
                recorder.finish(&events, label, cc, start, summary)
            })
            .collect();
        Recording {
            label: scenario.cc(),
            contender: None,
            varied: Vec::new(),
            source: Source::Sim,
            cc: scenario.cc(),
            seed,
            valid: true,
            invalid_because: Vec::new(),
            summary,
            fairness: None,
            flows,
            links,
            path,
            checks: Vec::new(),
            health: None,
            provenance: Provenance {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                scenario: Scenario { seed, repeats: 1, ..*scenario }.to_toml(),
                transports,
                ..Provenance::default()
            },
        }
    }
}
