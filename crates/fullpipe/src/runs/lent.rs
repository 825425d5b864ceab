//! Controllers that the kernel is lent for a run, and a look into them while it lasts.

use fullpipe_ebpf::loader::{self, Held};
use fullpipe_ebpf::sockets::{Socket, Watch};
use fullpipe_ebpf::{Controller, Error};
use fullpipe_experiment::scenario::Scenario;
use fullpipe_lab::{Belief, Inspect, offers};
use fullpipe_units::{Rate, Span};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

/// What this process has loaded. It is never given back by hand: the kernel takes away what nobody holds, so it
/// is gone when the process is, however that ends.
static HELD: Mutex<Vec<Held>> = Mutex::new(Vec::new());

/// Has the kernel offer `cc` until this process ends, if that is one of those we have as eBPF and the kernel lacks
/// it.
///
/// # Errors
/// Why it cannot be loaded.
pub fn lend(cc: &str) -> Result<(), Error> {
    let Ok(controller) = cc.parse::<Controller>() else { return Ok(()) };
    // Runs side by side ask at the same time: the first brings it.
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    if !offers(cc) {
        held.push(loader::hold(controller)?);
    }
    Ok(())
}

/// How the lab sees what the controllers of `scenario` believe, if some of them are ours and we may look. Without
/// it a run is whole but for that.
pub fn watcher(scenario: &Scenario) -> Option<Arc<dyn Inspect>> {
    scenario.flows.iter().find(|flow| flow.cc.parse::<Controller>().is_ok())?;
    Some(Arc::new(Watcher(Mutex::new(Watch::load().ok()?))))
}

/// What has watchers in the lab's own process: the first thing that the program does.
pub fn reenter() {
    fullpipe_lab::reenter_with(|descriptors| {
        Ok(Arc::new(Watcher(Mutex::new(Watch::from_descriptors(descriptors)?))))
    });
}

/// Sees the controllers that have a state: BBR's.
#[derive(Debug)]
struct Watcher(Mutex<Watch>);

impl Inspect for Watcher {
    fn descriptors(&self) -> io::Result<Vec<OwnedFd>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).descriptors()
    }

    fn sees(&self, name: &str) -> bool {
        [Controller::Bbr1, Controller::Bbr3].iter().any(|controller| controller.name() == name)
    }

    fn watch(&self, socket: BorrowedFd<'_>, number: usize) -> io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).add(socket, number as u64)
    }

    fn look(&self, seen: &mut dyn FnMut(usize, Belief)) -> io::Result<()> {
        let mut watch = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        watch.look(|number, socket| seen(number as usize, belief(&socket)))
    }
}

fn belief(socket: &Socket) -> Belief {
    Belief {
        state: socket.state,
        // Zero is no estimate yet.
        bw: socket.bw.filter(|&bw| bw > 0).map(Rate::from_bytes_per_sec),
        min_rtt: socket.min_rtt_us.map(Span::from_micros),
        pacing_gain: socket.pacing_gain,
        cwnd_gain: socket.cwnd_gain,
        inflight_longterm: socket.inflight_longterm,
        inflight_shortterm: socket.inflight_shortterm,
        rounds: socket.rounds,
    }
}
