//! Preparation of a run: checks the scenario, and creates the ends and their connections.

use super::{Inside, RunJob};
use crate::LabError;
use crate::capture::{self, Capture};
use crate::flow::{Connection, StartOptions};
use crate::inspect::Inspect;
use crate::kernel;
use crate::space::{Topology, Use};
use fullpipe_experiment::scenario::{App, Direction, Fault, FlowSpec, Scenario};
use fullpipe_units::{Rate, Span};
use std::sync::Arc;

/// Most connections of one run: two sockets and a port each.
const MAX_CONNECTIONS: usize = 2000;

/// Largest request: it must fit into the initial socket buffer.
const MAX_REQUEST: u64 = 64 << 10;

impl<'a> Inside<'a> {
    pub(super) fn prepare(job: &'a RunJob, inspect: Option<Arc<dyn Inspect>>) -> Result<Self, LabError> {
        let scenario = &job.scenario;
        let mut topology = Topology::build(scenario.mtu, Use::Scenario)?;
        if job.ipv6 && !topology.ipv6 {
            return Err(LabError::Impossible(format!(
                "no IPv6: the kernel was started without it, or the MTU of {} is below 1280",
                scenario.mtu
            )));
        }
        let specs = scenario.connections();
        if specs.len() > MAX_CONNECTIONS {
            return Err(LabError::Input(format!(
                "{} flows: the lab runs at most {MAX_CONNECTIONS} at a time",
                specs.len()
            )));
        }
        raise_open_files();
        let mut notes = Vec::new();
        let mut connections = connections(specs, job, &mut topology, &mut notes)?;
        notes.sort();
        notes.dedup();
        topology.bound_buffers(&mut connections)?;
        topology.never_defer(&connections)?;
        notes.extend(topology.refused.drain(..).map(|r| format!("setting refused: {r}")));
        let capture =
            |end: &str| job.pcap.as_ref().map(|p| Capture::create(&capture::named(p, end))).transpose();
        let captures = [capture("client")?, capture("server")?];
        let start_options = StartOptions { ipv6: job.ipv6, unsent: unsent(scenario) };
        Ok(Inside {
            scenario,
            seed: job.seed,
            topology,
            connections,
            start_options,
            inspect,
            captures,
            notes,
        })
    }
}

/// The scenario's flows as connections, by number, each on a route with its initial window and ECN
/// setting. Adds to `notes` how they differ from the scenario.
fn connections(
    specs: Vec<FlowSpec>,
    job: &RunJob,
    topology: &mut Topology,
    notes: &mut Vec<String>,
) -> Result<Vec<Connection>, LabError> {
    let mut routes: Vec<(Direction, u32, bool)> = Vec::new();
    let mut connections = Vec::with_capacity(specs.len());
    for (number, spec) in specs.into_iter().enumerate() {
        check_supported(number, &spec)?;
        notes.extend(differences(&spec));
        let steered = steered(&spec, job)?;
        let route = (spec.direction, spec.initial_window, spec.ecn);
        let known = routes.iter().position(|r| *r == route);
        let address_number = known.unwrap_or(routes.len());
        let connection =
            Connection { number, spec, steered, address_number, receive_buffer: None, send_buffer: None };
        if known.is_none() {
            routes.push(route);
            topology.set_route(connection.sending_end(), address_number, route.1, route.2)?;
        }
        connections.push(connection);
    }
    Ok(connections)
}

/// Refuses flow `number` if kernel TCP does not support it.
fn check_supported(number: usize, spec: &FlowSpec) -> Result<(), LabError> {
    if let App::RequestResponse { request, .. } = spec.app
        && request.0 > MAX_REQUEST
    {
        return Err(LabError::Input(format!(
            "flow {number}: a request of {request} bytes; the lab's are at most {MAX_REQUEST}"
        )));
    }
    if let Some(Fault { key, reason, .. }) = spec.simulator_only_setting() {
        return Err(LabError::Input(format!("flow {number}: `{key}`: {reason}; the simulator supports it")));
    }
    Ok(())
}

/// How the flow's controller differs from the scenario's.
fn differences(spec: &FlowSpec) -> impl Iterator<Item = String> {
    let settings = (!spec.settings.is_empty())
        .then(|| format!("the settings of {} do not apply: the kernel's controller has none", spec.cc));
    let name = kernel::controller(&spec.cc).filter(|name| *name != spec.cc);
    settings.into_iter().chain(name.map(|name| format!("{} runs as the kernel's {name}", spec.cc)))
}

/// The kernel's name of the steerable controller that the flow's trained controller uses; `None`
/// for other flows.
fn steered(spec: &FlowSpec, job: &RunJob) -> Result<Option<String>, LabError> {
    let steered = spec.policy.as_ref().and(job.steered.as_ref());
    if spec.policy.is_some() && steered.is_none() {
        return Err(LabError::Impossible(format!(
            "{}: trained controllers need root and a fullpipe that was built with the feature `ebpf`",
            spec.cc
        )));
    }
    Ok(steered.cloned())
}

/// Most unsent bytes of a socket: 100 ms at the path's highest rate, so that an application that is
/// scheduled late does not leave TCP without data, and that the flow ends within that time when the
/// application stops.
fn unsent(scenario: &Scenario) -> u32 {
    let rate = scenario.highest_rate().unwrap_or(Rate::MAX);
    rate.bytes_in(Span::from_millis(100)).clamp(16 << 10, 16 << 20) as u32
}

/// Raises the process's limit of open files to the machine's.
fn raise_open_files() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}
