//! `fullpipe guard`: the process that rolls an unconfirmed change back, even if the process that
//! made it dies.

use super::host::{Target, failure};
use crate::failure::Failure;
use fullpipe_host::trial::{self, Decision};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The line that the process prints when it is ready.
const READY: &str = "ready";

/// Roll an unconfirmed change back at its deadline (internal)
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    target: Target,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let (host, store) = self.target.open()?;
        // In its own session the process gets neither the terminal's hang-up nor its Ctrl-C.
        let _ = nix::unistd::setsid();
        let impossible = |e: Errno| Failure::Impossible(format!("cannot wait for signals: {e}"));
        SigSet::from(Signal::SIGHUP).thread_block().map_err(impossible)?;
        let signals = Signals::block(&[Signal::SIGINT, Signal::SIGTERM]).map_err(impossible)?;
        // Keeps no mount busy.
        let _ = std::env::set_current_dir("/");
        let mut out = io::stdout();
        let _ = writeln!(out, "{READY}").and_then(|()| out.flush());
        // An unconfirmed change is rolled back even if this process is asked to end.
        let mut ask = |time| if signals.wait(time) { Decision::Undo } else { Decision::Pending };
        trial::watch(&*host, &store, &mut ask).map(drop).map_err(failure)
    }
}

/// Signals that are read instead of ending the program.
pub struct Signals(SignalFd);

impl Signals {
    /// Blocks the signals so that they can be read. Call it before other threads are started.
    pub fn block(signals: &[Signal]) -> nix::Result<Signals> {
        let set: SigSet = signals.iter().copied().collect();
        set.thread_block()?;
        SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).map(Signals)
    }

    /// Consumes the next pending signal, if there is one.
    pub fn pending(&self) -> bool {
        matches!(self.0.read_signal(), Ok(Some(_)))
    }

    /// Waits at most this long for a signal.
    fn wait(&self, time: Duration) -> bool {
        let _ = poll(&mut [PollFd::new(self.as_fd(), PollFlags::POLLIN)], timeout(time));
        self.pending()
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A timeout for poll(2), rounded up so that a wait is never too short.
pub fn timeout(time: Duration) -> PollTimeout {
    PollTimeout::try_from(time + Duration::from_micros(999)).unwrap_or(PollTimeout::MAX)
}

/// Starts the process, and waits until it is ready.
///
/// Under systemd it runs in its own scope: with logind's `KillUserProcesses=`, processes in a
/// session's scope end with the session.
pub fn start(target: &Target) -> io::Result<()> {
    let systemd = target.is_this_machine() && Path::new("/run/systemd/system").is_dir();
    let scope = ["systemd-run", "--quiet", "--scope", "--collect", "--"];
    if systemd && run(&scope, target).is_ok() {
        return Ok(());
    }
    run(&[], target)
}

fn run(before: &[&str], target: &Target) -> io::Result<()> {
    let program = std::env::current_exe()?.into_os_string();
    let mut words = before.iter().map(Into::into).chain([program, "guard".into()]).chain(target.arguments());
    let mut child = Command::new(words.next().unwrap_or_default())
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut line)?;
    }
    if line.trim() == READY {
        return Ok(());
    }
    let status = child.wait()?;
    Err(io::Error::other(format!("the guard process exited at once ({status})")))
}
