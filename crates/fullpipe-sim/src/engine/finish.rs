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
}

impl Ended {
    fn new(c: Connection<AnyController>, end: Time) -> Self {
        // A flow whose start condition never came true starts at the end.
        let start = c.start.min(end);
        Ended { recorder: c.recorder, events: c.sender.events, access: c.access, start }
    }
}

impl World {
    /// The recording of the run, its checks not yet judged.
    pub fn finish(mut self) -> Recording {
        for c in &mut self.flows.connections {
            c.recorder.settle();
        }
        let path = self.scenario.path.facts(self.scenario.mtu, self.scenario.smss());
        let (summary, summaries) = self.summaries(path.goodput_limit_bps);
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
        // the recordings need as much.
        let ended: Vec<Ended> = flows.connections.into_iter().map(|c| Ended::new(c, end)).collect();
        let flows: Vec<FlowRecording> = ended
            .into_iter()
            .zip(labels.into_iter().zip(controllers))
            .zip(summaries)
            .map(|((flow, (label, cc)), summary)| {
                links.extend(flow.access.and_then(|access| access.finish(&label)));
                flow.recorder.finish(&flow.events, label, cc, flow.start, summary)
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

    /// The summaries of the run and of each flow; `limit` is the path's maximum goodput in bit/s.
    fn summaries(&self, limit: Option<f64>) -> (Summary, Vec<Summary>) {
        let warmup = Time::ZERO + self.scenario.warmup;
        let utilization = |bps: f64| limit.filter(|&l| l > 0.0).map(|l| bps / l);
        let connections = &self.flows.connections;
        let summaries: Vec<Summary> = connections
            .iter()
            .map(|c| {
                let duration = c.end(self.end).since(c.start.max(warmup));
                let completion = c.completed().map(|at| at.since(c.start));
                let mut s = c.recorder.summary(&c.telemetry(), c.arrived(), duration, completion);
                s.utilization = utilization(s.goodput_bps);
                s
            })
            .collect();
        let recorders: Vec<&FlowRecorder> = connections.iter().map(|c| &c.recorder).collect();
        let last = connections.iter().map(|c| c.end(self.end)).max().unwrap_or(self.end);
        let mut summary = total(&summaries, &recorders, last.since(warmup));
        summary.utilization = utilization(summary.goodput_bps);
        (summary, summaries)
    }
}
