//! Gives a socket of a lab run another controller during the run.

use fullpipe_ebpf::kernel::Kernel;
use fullpipe_ebpf::loader::{self, Loaded, Registered};
use fullpipe_ebpf::sockets::{Socket, Watch};
use fullpipe_experiment::recording::Recording;
use fullpipe_experiment::scenario::{Vocabulary, parse};
use fullpipe_kernel::tcp_info::{BbrMode, CaState, CcInfo, TcpInfo, pin};
use fullpipe_lab::{ControllerState, Inspect, Options};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

/// fullpipe's controllers under names of this test, unloaded when dropped.
pub struct Ours {
    _registered: Vec<Registered>,
    _loaded: Vec<Loaded>,
}

impl Ours {
    /// The names are `PREFIX_bbr3` and `PREFIX_bbr1`.
    pub fn load(prefix: &str) -> Ours {
        let kernel = Kernel::detect().unwrap();
        let load = |short: &str| {
            let name = format!("{prefix}_{short}");
            loader::load(short.parse().unwrap(), Some(&name), &kernel).unwrap()
        };
        let mut loaded: Vec<Loaded> = ["bbr3", "bbr1"].map(load).into();
        let registered = loaded.iter_mut().map(|one| one.attach().unwrap()).collect();
        Ours { _registered: registered, _loaded: loaded }
    }
}

/// The state of a connection when it is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum When {
    /// Startup, or slow start.
    Startup,
    Drain,
    /// ProbeBW, or congestion avoidance.
    ProbeBw,
    ProbeRtt,
    /// Fast recovery.
    Recovery,
    /// Idle: nothing in flight and nothing to send.
    Idle,
    /// Any state, once 200 kB have arrived.
    Sending,
}

/// A move and its outcome.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Move {
    pub when: When,
    pub to: String,
    pub done: Option<Done>,
}

/// A completed move.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Done {
    /// Acknowledged bytes.
    pub acked: u64,
    /// Whether the connection was paced just before and just after.
    pub was_paced: bool,
    pub is_paced: bool,
    /// The window, in packets, just after.
    pub cwnd: u32,
}

impl When {
    /// Whether the connection is in this state now, late enough after the start.
    fn is_now(self, info: &TcpInfo, state: Option<&str>) -> bool {
        let acked = info.bytes_acked.unwrap_or_default();
        let is_open = matches!(info.ca_state, CaState::Open | CaState::Disorder);
        match self {
            When::Startup => acked > 30_000 && state.map_or(info.in_slow_start(), |state| state == "Startup"),
            When::Drain => state == Some("Drain"),
            When::ProbeBw => {
                acked > 3_000_000 && is_open && state.is_none_or(|state| state.starts_with("ProbeBW"))
            }
            // The kernel's bbr has the gains of ProbeRTT before it begins.
            When::ProbeRtt => acked > 1_000_000 && state == Some("ProbeRTT"),
            When::Recovery => acked > 1_000_000 && info.ca_state == CaState::Recovery,
            When::Idle => acked > 1_000_000 && info.unacked == 0 && info.notsent_bytes == Some(0),
            When::Sending => acked > 200_000,
        }
    }
}

/// Moves the first socket of a run, in the lab's own process. A file passes the plan in and the
/// outcome out.
#[derive(Debug)]
pub struct Mover {
    watch: Mutex<Watch>,
    file: File,
    inside: Mutex<Option<(OwnedFd, Move)>>,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mover {
    fn new(planned: &Move) -> Mover {
        let file = tempfile::tempfile().unwrap();
        let mover = Mover { watch: Mutex::new(Watch::load().unwrap()), file, inside: Mutex::default() };
        mover.write(planned).unwrap();
        mover
    }

    /// Used in the lab's own process.
    pub fn from_descriptors(mut descriptors: Vec<OwnedFd>) -> io::Result<Arc<dyn Inspect>> {
        let file = descriptors.pop().ok_or_else(|| io::Error::other("a mover has three descriptors"))?.into();
        let watch = Mutex::new(Watch::from_descriptors(descriptors)?);
        Ok(Arc::new(Mover { watch, file, inside: Mutex::default() }))
    }

    fn write(&self, what: &Move) -> io::Result<()> {
        let text = serde_json::to_vec(what)?;
        self.file.write_all_at(&text, 0)?;
        self.file.set_len(text.len() as u64)
    }

    fn read(&self) -> io::Result<Move> {
        let mut text = vec![0; self.file.metadata()?.len() as usize];
        self.file.read_exact_at(&mut text, 0)?;
        Ok(serde_json::from_slice(&text)?)
    }

    fn socket(&self) -> io::Result<Option<Socket>> {
        let mut found = None;
        locked(&self.watch).sample(|_, socket| found = Some(socket))?;
        Ok(found)
    }
}

/// The state of the kernel's own BBR.
fn kernels_state(socket: &OwnedFd) -> Option<&'static str> {
    match CcInfo::query(socket).ok()?? {
        CcInfo::Bbr(bbr) => Some(match bbr.mode()? {
            BbrMode::Startup => "Startup",
            BbrMode::Drain => "Drain",
            BbrMode::ProbeBw => "ProbeBW",
            BbrMode::ProbeRtt => "ProbeRTT",
        }),
        _ => None,
    }
}

impl Inspect for Mover {
    fn descriptors(&self) -> io::Result<Vec<OwnedFd>> {
        let mut all = locked(&self.watch).descriptors()?;
        all.push(self.file.try_clone()?.into());
        Ok(all)
    }

    fn supports(&self, _: &str) -> bool {
        true
    }

    fn watch(&self, socket: BorrowedFd<'_>, number: usize) -> io::Result<()> {
        if number == 0 {
            locked(&self.watch).add(socket, 0)?;
            *locked(&self.inside) = Some((socket.try_clone_to_owned()?, self.read()?));
        }
        Ok(())
    }

    fn sample(&self, seen: &mut dyn FnMut(usize, ControllerState)) -> io::Result<()> {
        let mut inside = locked(&self.inside);
        let (Some((descriptor, planned)), Some(socket)) = (inside.as_mut(), self.socket()?) else {
            return Ok(());
        };
        let info = TcpInfo::query(descriptor)?;
        let state = socket.state.or_else(|| kernels_state(descriptor));
        if planned.done.is_none() && planned.when.is_now(&info, state) {
            pin(descriptor, &planned.to).map_err(io::Error::other)?;
            let after = self.socket()?.ok_or_else(|| io::Error::other("the socket is gone"))?;
            planned.done = Some(Done {
                acked: info.bytes_acked.unwrap_or_default(),
                was_paced: socket.is_paced,
                is_paced: after.is_paced,
                cwnd: after.cwnd,
            });
            self.write(planned)?;
        }
        if state.is_some() {
            seen(0, ControllerState { state, ..ControllerState::default() });
        }
        Ok(())
    }
}

/// A lab run and the move in it.
pub struct Moved {
    pub recording: Recording,
    pub done: Option<Done>,
}

/// Runs the scenario in the lab, with its first connection moved as `planned`, if given.
pub fn run(text: &str, seed: u64, planned: Option<Move>, names: &[&str]) -> Moved {
    let no_files = |name: &str| Err(format!("no file {name}"));
    let case = parse("moved", text, &Vocabulary::new(names.iter().copied()), &no_files).unwrap().remove(0);
    let mover = planned.map(|planned| Arc::new(Mover::new(&planned)));
    let inspect = mover.clone().map(|mover| mover as Arc<dyn Inspect>);
    let options = Options { inspect, ..Options::default() };
    let go_on = &mut |_| ControlFlow::Continue(());
    let recording = fullpipe_lab::run_with(&case.scenario, seed, &options, go_on).unwrap();
    let done = mover.and_then(|mover| mover.read().unwrap().done);
    Moved { recording, done }
}

/// The time at which `bytes` had arrived, in seconds of the run.
pub fn arrival(recording: &Recording, bytes: u64) -> f64 {
    let points = recording.flows[0].series.points("delivered_bytes", -1.0, f64::INFINITY);
    points.iter().find(|(_, delivered)| *delivered >= bytes as f64).map_or(f64::NAN, |(at, _)| *at)
}

/// Goodput between two times of a run, in Mbit/s.
pub fn goodput(recording: &Recording, from: f64, to: f64) -> f64 {
    let points = recording.flows[0].series.points("delivered_bytes", from, to);
    let (Some((begin, before)), Some((end, after))) = (points.first(), points.last()) else {
        return f64::NAN;
    };
    (after - before) * 8e-6 / (end - begin)
}
