//! Before a run: what the scenario asks for is looked at, and the ends and their connections are made.

use super::{Inside, RunJob};
use crate::LabError;
use crate::capture::{self, Capture};
use crate::flow::{Connection, Outset};
use crate::inspect::Inspect;
use crate::kernel;
use crate::space::{Topology, Use};
use fullpipe_experiment::scenario::{App, Direction, Fault, FlowSpec, Scenario};
use fullpipe_units::{Rate, Span};
use std::sync::Arc;

/// Most connections of one run: two sockets and a port each.
const MOST_CONNECTIONS: usize = 2000;

/// Longest question of a request and response: it must fit in a socket that is still small.
const MOST_REQUEST: u64 = 64 << 10;

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
        if specs.len() > MOST_CONNECTIONS {
            return Err(LabError::Input(format!(
                "{} flows: the lab runs at most {MOST_CONNECTIONS} at a time",
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
        let outset = Outset { ipv6: job.ipv6, unsent: unsent(scenario) };
        Ok(Inside { scenario, seed: job.seed, topology, connections, outset, inspect, captures, notes })
    }
}

/// The scenario's flows as connections, by number; each goes by a route that has what it asks of one. How they differ from what
/// was asked for is added to `notes`.
fn connections(
    specs: Vec<FlowSpec>,
    job: &RunJob,
    topology: &mut Topology,
    notes: &mut Vec<String>,
) -> Result<Vec<Connection>, LabError> {
    let mut routes: Vec<(Direction, u32, bool)> = Vec::new();
    let mut connections = Vec::with_capacity(specs.len());
    for (number, spec) in specs.into_iter().enumerate() {
        can_be(number, &spec)?;
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

/// Refuses flow `number` if it asks for what kernel TCP does not do.
fn can_be(number: usize, spec: &FlowSpec) -> Result<(), LabError> {
    if let App::RequestResponse { request, .. } = spec.app
        && request.0 > MOST_REQUEST
    {
        return Err(LabError::Input(format!(
            "flow {number}: a request of {request} bytes; the lab's are at most {MOST_REQUEST}"
        )));
    }
    if let Some(Fault { key, reason, .. }) = spec.simulator_only_setting() {
        return Err(LabError::Input(format!("flow {number}: `{key}`: {reason}; the simulator can be asked")));
    }
    Ok(())
}

/// How the flow's controller differs from the one that the scenario means.
fn differences(spec: &FlowSpec) -> impl Iterator<Item = String> {
    let settings = (!spec.settings.is_empty())
        .then(|| format!("the settings of {} do not apply: the kernel's has none", spec.cc));
    let name = kernel::controller(&spec.cc).filter(|name| *name != spec.cc);
    settings.into_iter().chain(name.map(|name| format!("{} is {name} here", spec.cc)))
}

/// The kernel's name of the controller that obeys the flow's trained one; `None` if it has no such.
fn steered(spec: &FlowSpec, job: &RunJob) -> Result<Option<String>, LabError> {
    let steered = spec.policy.as_ref().and(job.steered.as_ref());
    if spec.policy.is_some() && steered.is_none() {
        return Err(LabError::Impossible(format!(
            "{}: nothing here can set the windows of a trained controller; as root, a fullpipe with the feature `ebpf` can",
            spec.cc
        )));
    }
    Ok(steered.cloned())
}

/// How much a socket may hold that is not sent yet: 100 ms of what the path ever carries, so that an application
/// that the machine wakes late does not leave TCP without data, and stops within that time when it should.
fn unsent(scenario: &Scenario) -> u32 {
    let rate = scenario.highest_rate().unwrap_or(Rate::MAX);
    rate.bytes_in(Span::from_millis(100)).clamp(16 << 10, 16 << 20) as u32
}

/// Lets the process have as many sockets as the machine allows.
fn raise_open_files() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}
