//! Controllers that the kernel is lent for a run, and a look into them while it lasts.

#[cfg(not(feature = "ebpf"))]
use fullpipe_experiment::scenario::policy_file;
use fullpipe_run::ControllerLoader;

/// What this build can lend the kernel.
#[cfg(feature = "ebpf")]
pub static LENT: &dyn ControllerLoader = &loaded::Loaded;
/// What this build can lend the kernel.
#[cfg(not(feature = "ebpf"))]
pub static LENT: &dyn ControllerLoader = &NotBuiltIn;

/// Whether the kernel offers a controller, or could be given it for as long as this process lives.
pub fn kernel_offers(cc: &str) -> bool {
    fullpipe_run::kernel_offers(cc, LENT)
}

/// Refuses what the kernel lacks and only a loaded controller could be.
#[cfg(not(feature = "ebpf"))]
struct NotBuiltIn;

#[cfg(not(feature = "ebpf"))]
impl ControllerLoader for NotBuiltIn {
    fn load(&self, cc: &str) -> Result<(), String> {
        if policy_file(cc).is_some() {
            return Err(
                "this fullpipe was built without the program that sets its windows (feature `ebpf`)".into()
            );
        }
        if cc.starts_with("fp_") && !fullpipe_lab::has_controller(cc) {
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

/// Takes back what this process lent the kernel: the last thing that the program does.
#[cfg(not(feature = "ebpf"))]
pub fn give_back() {}

#[cfg(feature = "ebpf")]
pub use loaded::{give_back, reenter};

#[cfg(feature = "ebpf")]
mod loaded {
    use fullpipe_ebpf::Controller;
    use fullpipe_ebpf::loader::{self, TemporaryController};
    use fullpipe_ebpf::pins;
    use fullpipe_ebpf::policy::{self, PolicyMaps};
    use fullpipe_ebpf::sockets::{Socket, Watch};
    use fullpipe_experiment::scenario::{Scenario, policy_file};
    use fullpipe_lab::{ControllerState, Inspect, SocketCounters, Steer, has_controller};
    use fullpipe_run::ControllerLoader;
    use fullpipe_units::{Rate, Span};
    use std::io;
    use std::os::fd::{BorrowedFd, OwnedFd};
    use std::sync::{Arc, Mutex, PoisonError};

    /// What this process has loaded. The kernel takes away what nobody holds, so it is gone when the process is, however that
    /// ends; but for a kernel without links for controllers, to which [`give_back`] does.
    static HELD: Mutex<Vec<TemporaryController>> = Mutex::new(Vec::new());

    /// The same of what obeys trained controllers.
    static STEERED: Mutex<Option<(TemporaryController, PolicyMaps)>> = Mutex::new(None);

    /// Loads those we have as eBPF, if the kernel lacks them.
    pub(super) struct Loaded;

    impl ControllerLoader for Loaded {
        fn load(&self, cc: &str) -> Result<(), String> {
            if policy_file(cc).is_some() {
                let mut steered = STEERED.lock().unwrap_or_else(PoisonError::into_inner);
                if steered.is_none() {
                    *steered = Some(policy::load().map_err(|e| e.to_string())?);
                }
                return Ok(());
            }
            let Ok(controller) = cc.parse::<Controller>() else { return Ok(()) };
            // What is there of another's who was killed may go at any time.
            pins::clean_up().map_err(|e| e.to_string())?;
            // Runs side by side ask at the same time: the first brings it.
            let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
            if !has_controller(cc) {
                held.push(loader::load_temporarily(controller).map_err(|e| e.to_string())?);
            }
            Ok(())
        }

        /// None if none of them is ours, or we may not look.
        fn inspector(&self, scenario: &Scenario) -> Option<Arc<dyn Inspect>> {
            let steered = STEERED.lock().unwrap_or_else(PoisonError::into_inner);
            let helm = steered.as_ref().filter(|_| scenario.flows.iter().any(|flow| flow.policy.is_some()));
            let helm = helm.and_then(|(_, helm)| helm.descriptors().ok()).map(PolicyMaps::from_descriptors);
            let helm = helm.and_then(Result::ok);
            if helm.is_none() && !scenario.flows.iter().any(|flow| flow.cc.parse::<Controller>().is_ok()) {
                return None;
            }
            Some(Arc::new(Watcher { watch: Mutex::new(Watch::load().ok()?), helm }))
        }
    }

    /// Takes back what this process lent the kernel: the last thing that the program does.
    pub fn give_back() {
        HELD.lock().unwrap_or_else(PoisonError::into_inner).clear();
        STEERED.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// What has watchers in the lab's own process: the first thing that the program does.
    pub fn reenter() {
        fullpipe_lab::reenter_with(|descriptors| {
            let mut descriptors = descriptors;
            // Two of a watch, and two of a helm where something is steered.
            let helm = match descriptors.len() {
                0..=2 => None,
                _ => Some(PolicyMaps::from_descriptors(descriptors.split_off(2))?),
            };
            Ok(Arc::new(Watcher { watch: Mutex::new(Watch::from_descriptors(descriptors)?), helm }))
        });
    }

    /// Sees the controllers that have a state, BBR's, and sets the windows and pacing rates of trained ones.
    #[derive(Debug)]
    struct Watcher {
        watch: Mutex<Watch>,
        helm: Option<PolicyMaps>,
    }

    impl Inspect for Watcher {
        fn descriptors(&self) -> io::Result<Vec<OwnedFd>> {
            let mut all = self.watch.lock().unwrap_or_else(PoisonError::into_inner).descriptors()?;
            all.extend(self.helm.as_ref().map_or(Ok(Vec::new()), PolicyMaps::descriptors)?);
            Ok(all)
        }

        fn supports(&self, name: &str) -> bool {
            [Controller::Bbr1, Controller::Bbr3].iter().any(|controller| controller.name() == name)
        }

        fn watch(&self, socket: BorrowedFd<'_>, number: usize) -> io::Result<()> {
            self.watch.lock().unwrap_or_else(PoisonError::into_inner).add(socket, number as u64)
        }

        fn sample(&self, seen: &mut dyn FnMut(usize, ControllerState)) -> io::Result<()> {
            let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
            watch.sample(|number, socket| seen(number as usize, belief(&socket)))
        }

        fn steer(&self) -> Option<&dyn Steer> {
            self.helm.as_ref().map(|_| self as &dyn Steer)
        }
    }

    impl Watcher {
        fn helm(&self) -> io::Result<&PolicyMaps> {
            self.helm.as_ref().ok_or_else(|| io::Error::other("nothing is steered here"))
        }
    }

    impl Steer for Watcher {
        fn controller(&self) -> String {
            policy::name()
        }

        fn track(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
            self.helm()?.track(socket)
        }

        fn counters(&self, socket: BorrowedFd<'_>) -> io::Result<SocketCounters> {
            let seen = self.helm()?.stats(socket)?;
            let rtt_sum = Span::from_micros(seen.rtt_sum_us);
            Ok(SocketCounters { rtt_sum, rtts: seen.rtts, acks: seen.acks, lost: seen.lost })
        }

        fn set(&self, socket: BorrowedFd<'_>, cwnd: u32, pacing: Option<Rate>) -> io::Result<()> {
            self.helm()?.set_window(socket, cwnd, pacing.map(Rate::as_bytes_per_sec))
        }
    }

    fn belief(socket: &Socket) -> ControllerState {
        ControllerState {
            state: socket.state,
            // Zero is no estimate yet.
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
}
