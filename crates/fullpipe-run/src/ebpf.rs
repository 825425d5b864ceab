//! eBPF controllers for runs in the lab: loads them for the duration of the process, and reads and
//! sets their state.

use crate::ControllerLoader;
use fullpipe_ebpf::Controller;
use fullpipe_ebpf::loader::{self, TemporaryController};
use fullpipe_ebpf::pins;
use fullpipe_ebpf::policy::{self, PolicyMaps};
use fullpipe_ebpf::sockets::{Socket, Watch};
use fullpipe_experiment::scenario::{Scenario, policy_file};
use fullpipe_lab::{ControllerState, Inspect, SocketCounters, Steer, has_controller};
use fullpipe_units::{Rate, Span};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

/// The controllers that this process has loaded. The kernel unloads them when the process
/// exits, for any reason; a kernel without BPF links for controllers needs [`unload_all`].
static LOADED: Mutex<Vec<TemporaryController>> = Mutex::new(Vec::new());

/// The program that carries out the decisions of trained controllers.
static POLICY: Mutex<Option<(TemporaryController, PolicyMaps)>> = Mutex::new(None);

/// Loads fullpipe's eBPF controllers if the kernel lacks them.
#[derive(Clone, Copy, Debug, Default)]
pub struct EbpfLoader;

impl ControllerLoader for EbpfLoader {
    fn load(&self, cc: &str) -> Result<(), String> {
        if policy_file(cc).is_some() {
            let mut policy = POLICY.lock().unwrap_or_else(PoisonError::into_inner);
            if policy.is_none() {
                *policy = Some(policy::load().map_err(|e| e.to_string())?);
            }
            return Ok(());
        }
        let Ok(controller) = cc.parse::<Controller>() else { return Ok(()) };
        // Leftovers of a killed process could disappear at any time: remove them first.
        pins::clean_up().map_err(|e| e.to_string())?;
        // Parallel runs may request it at the same time: the first loads it.
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        if !has_controller(cc) {
            loaded.push(loader::load_temporarily(controller).map_err(|e| e.to_string())?);
        }
        Ok(())
    }

    /// None if no flow uses a controller of fullpipe, or its state is not accessible.
    fn inspector(&self, scenario: &Scenario) -> Option<Arc<dyn Inspect>> {
        let policy = POLICY.lock().unwrap_or_else(PoisonError::into_inner);
        let maps = policy.as_ref().filter(|_| scenario.flows.iter().any(|flow| flow.policy.is_some()));
        let maps = maps.and_then(|(_, maps)| maps.descriptors().ok()).map(PolicyMaps::from_descriptors);
        let maps = maps.and_then(Result::ok);
        if maps.is_none() && !scenario.flows.iter().any(|flow| flow.cc.parse::<Controller>().is_ok()) {
            return None;
        }
        Some(Arc::new(Watcher { watch: Mutex::new(Watch::load().ok()?), maps }))
    }
}

/// Unloads the controllers that this process has loaded. Call it last in `main`.
pub fn unload_all() {
    LOADED.lock().unwrap_or_else(PoisonError::into_inner).clear();
    POLICY.lock().unwrap_or_else(PoisonError::into_inner).take();
}

/// Continues as the lab's own process, with access to the controllers' state, if this process
/// was started as that. Call it first in `main`.
pub fn reenter() {
    fullpipe_lab::reenter_with(|descriptors| {
        let mut descriptors = descriptors;
        // Two descriptors of the watch, and two of the policy's maps if there is one.
        let maps = match descriptors.len() {
            0..=2 => None,
            _ => Some(PolicyMaps::from_descriptors(descriptors.split_off(2))?),
        };
        Ok(Arc::new(Watcher { watch: Mutex::new(Watch::from_descriptors(descriptors)?), maps }))
    });
}

/// Reads the state of BBR controllers, and sets windows and pacing rates for trained ones.
#[derive(Debug)]
struct Watcher {
    watch: Mutex<Watch>,
    maps: Option<PolicyMaps>,
}

impl Inspect for Watcher {
    fn descriptors(&self) -> io::Result<Vec<OwnedFd>> {
        let mut all = self.watch.lock().unwrap_or_else(PoisonError::into_inner).descriptors()?;
        all.extend(self.maps.as_ref().map_or(Ok(Vec::new()), PolicyMaps::descriptors)?);
        Ok(all)
    }

    fn supports(&self, name: &str) -> bool {
        [Controller::Bbr1, Controller::Bbr3].iter().any(|controller| controller.name() == name)
    }

    fn watch(&self, socket: BorrowedFd<'_>, number: usize) -> io::Result<()> {
        self.watch.lock().unwrap_or_else(PoisonError::into_inner).add(socket, number as u64)
    }

    fn sample(&self, state: &mut dyn FnMut(usize, ControllerState)) -> io::Result<()> {
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        watch.sample(|number, socket| state(number as usize, controller_state(&socket)))
    }

    fn steer(&self) -> Option<&dyn Steer> {
        self.maps.as_ref().map(|_| self as &dyn Steer)
    }
}

impl Watcher {
    fn maps(&self) -> io::Result<&PolicyMaps> {
        self.maps.as_ref().ok_or_else(|| io::Error::other("no trained controller is loaded"))
    }
}

impl Steer for Watcher {
    fn controller(&self) -> String {
        policy::name()
    }

    fn track(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.maps()?.track(socket)
    }

    fn counters(&self, socket: BorrowedFd<'_>) -> io::Result<SocketCounters> {
        let stats = self.maps()?.stats(socket)?;
        let rtt_sum = Span::from_micros(stats.rtt_sum_us);
        Ok(SocketCounters { rtt_sum, rtts: stats.rtts, acks: stats.acks, lost: stats.lost })
    }

    fn set(&self, socket: BorrowedFd<'_>, cwnd: u32, pacing: Option<Rate>) -> io::Result<()> {
        self.maps()?.set_window(socket, cwnd, pacing.map(Rate::as_bytes_per_sec))
    }
}

fn controller_state(socket: &Socket) -> ControllerState {
    ControllerState {
        state: socket.state,
        // Zero means that there is no estimate yet.
        bw: socket.bw.filter(|&bw| bw > 0).map(Rate::from_bytes_per_sec),
        max_bw: socket.max_bw.map(Rate::from_bytes_per_sec),
        bw_shortterm: socket.bw_shortterm.map(Rate::from_bytes_per_sec),
        min_rtt: socket.min_rtt_us.map(Span::from_micros),
        pacing_gain: socket.pacing_gain,
        cwnd_gain: socket.cwnd_gain,
        inflight_longterm: socket.inflight_longterm,
        inflight_shortterm: socket.inflight_shortterm,
        rounds: socket.rounds,
    }
}
