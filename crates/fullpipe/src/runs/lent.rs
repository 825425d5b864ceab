//! Controllers that the kernel is lent for a run, and a look into them while it lasts.

use fullpipe_run::Lend;

/// What this build can lend the kernel.
#[cfg(feature = "ebpf")]
pub static LENT: &dyn Lend = &loaded::Loaded;
/// What this build can lend the kernel.
#[cfg(not(feature = "ebpf"))]
pub static LENT: &dyn Lend = &NotBuiltIn;

/// Whether the kernel offers a controller, or could be given it for as long as this process lives.
pub fn kernel_offers(cc: &str) -> bool {
    fullpipe_run::kernel_offers(cc, LENT)
}

/// Refuses what the kernel lacks and only a loaded controller could be.
#[cfg(not(feature = "ebpf"))]
struct NotBuiltIn;

#[cfg(not(feature = "ebpf"))]
impl Lend for NotBuiltIn {
    fn lend(&self, cc: &str) -> Result<(), String> {
        if cc.starts_with("fp_") && !fullpipe_lab::offers(cc) {
            return Err("this fullpipe was built without the controllers it can load (feature `ebpf`)".into());
        }
        Ok(())
    }
}

/// What has to watch controllers in the lab's own process: the first thing that the program does.
#[cfg(not(feature = "ebpf"))]
pub fn reenter() {
    fullpipe_lab::reenter();
}

#[cfg(feature = "ebpf")]
pub use loaded::reenter;

#[cfg(feature = "ebpf")]
mod loaded {
    use fullpipe_ebpf::Controller;
    use fullpipe_ebpf::loader::{self, Held};
    use fullpipe_ebpf::sockets::{Socket, Watch};
    use fullpipe_experiment::scenario::Scenario;
    use fullpipe_lab::{Belief, Inspect, offers};
    use fullpipe_run::Lend;
    use fullpipe_units::{Rate, Span};
    use std::io;
    use std::os::fd::{BorrowedFd, OwnedFd};
    use std::sync::{Arc, Mutex, PoisonError};

    /// What this process has loaded. It is never given back by hand: the kernel takes away what nobody holds, so it
    /// is gone when the process is, however that ends.
    static HELD: Mutex<Vec<Held>> = Mutex::new(Vec::new());

    /// Loads those we have as eBPF, if the kernel lacks them.
    pub(super) struct Loaded;

    impl Lend for Loaded {
        fn lend(&self, cc: &str) -> Result<(), String> {
            let Ok(controller) = cc.parse::<Controller>() else { return Ok(()) };
            // Runs side by side ask at the same time: the first brings it.
            let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
            if !offers(cc) {
                held.push(loader::hold(controller).map_err(|e| e.to_string())?);
            }
            Ok(())
        }

        /// None if none of them is ours, or we may not look.
        fn watcher(&self, scenario: &Scenario) -> Option<Arc<dyn Inspect>> {
            scenario.flows.iter().find(|flow| flow.cc.parse::<Controller>().is_ok())?;
            Some(Arc::new(Watcher(Mutex::new(Watch::load().ok()?))))
        }
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
}
