//! Runs any program behind an emulated path.

use crate::LabError;
use crate::capture::{self, Capture, Tap};
use crate::emulator::{Audit, Emulator, KnownFlows, Plan, Views};
use crate::health::{self, KEEPS_UP_BELOW, Verdict};
use crate::priority;
use crate::reenter::Job;
use crate::space::{
    Addresses, CLIENT, Enclosure, End, Message, Outer, SERVER, Topology, Use, raise_ambient_capabilities,
    remount_proc,
};
use crate::waits::{INTERVAL, Programs, WaitAudit};
use fullpipe_experiment::recording::{Health, LinkRecording, Waits};
use fullpipe_path::{BuildContext, Direction, LinkSpec};
use fullpipe_units::{Rate, Span, Time};
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The client's address in a shell; the client of a nested shell has 198.18.1.1 (2001:2::1:1), and
/// so on.
pub const CLIENT_ADDRESS: (Ipv4Addr, Ipv6Addr) = (Addresses::v4(CLIENT, 0), Addresses::v6(CLIENT, 0));
/// The server's address in a shell.
pub const SERVER_ADDRESS: (Ipv4Addr, Ipv6Addr) = (Addresses::v4(SERVER, 0), Addresses::v6(SERVER, 0));

/// A command to run at the client's end of a path.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Shell {
    /// Links from client to server.
    pub forward: Vec<LinkSpec>,
    /// Links from server to client.
    pub reverse: Vec<LinkSpec>,
    /// Largest packet in bytes (L3).
    pub mtu: u32,
    /// Seed of the path's randomness.
    pub seed: u64,
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Command lines to run at the server's end meanwhile, by `sh -c`. Without any, a nested shell
    /// uses the outer shell's server: packets pass this path and then the outer one.
    pub servers: Vec<String>,
    /// Prefix of captures: `PREFIX-client.pcap`, `PREFIX-server.pcap`.
    pub pcap: Option<PathBuf>,
}

/// Report of the path while the command ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShellReport {
    /// The command's exit code; 128 and the signal's number if a signal ended it.
    pub exit_code: u8,
    /// Run time in seconds.
    pub duration_s: f64,
    /// The links, forward ones first.
    pub links: Vec<LinkReport>,
    /// How well the emulator kept up.
    pub health: Health,
    /// Why the figures are invalid; empty if they are valid.
    pub invalid_because: Vec<String>,
}

/// Report of one link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkReport {
    /// Packets and drops.
    #[serde(flatten)]
    pub link: LinkRecording,
    /// L3 bytes that left it.
    pub bytes_out: u64,
    /// Largest queue in bytes.
    pub max_queue_bytes: u64,
}

/// Runs the command and waits for it. Only the command receives interrupts from the terminal.
///
/// # Errors
/// [`LabError::Impossible`] if the machine lacks something, [`LabError::Input`] for an invalid path
/// or command.
pub fn shell(shell: &Shell) -> Result<ShellReport, LabError> {
    let _ignored = IgnoredInterrupts::new();
    let job = serde_json::to_vec(&Job::Shell(shell.clone()));
    let job = job.map_err(|e| LabError::failed("cannot write the job", e))?;
    let mut enclosure = Enclosure::start(&job, &[])?;
    loop {
        if let Message::Done(outcome) = enclosure.next()? {
            return serde_json::from_slice(&outcome?)
                .map_err(|e| LabError::failed("cannot read the report", e));
        }
    }
}

/// Ignores the terminal's interrupts while it exists: the command handles them, and the report
/// follows.
struct IgnoredInterrupts([(Signal, SigHandler); 2]);

impl IgnoredInterrupts {
    fn new() -> Self {
        // SAFETY: ignoring a signal installs no handler.
        let ignore = |s| (s, unsafe { signal(s, SigHandler::SigIgn) }.unwrap_or(SigHandler::SigDfl));
        IgnoredInterrupts([ignore(Signal::SIGINT), ignore(Signal::SIGQUIT)])
    }
}

impl Drop for IgnoredInterrupts {
    fn drop(&mut self) {
        for (s, before) in self.0 {
            // SAFETY: restores the previous handler.
            let _ = unsafe { signal(s, before) };
        }
    }
}

/// Runs the shell's command; returns the report as JSON.
pub(crate) fn inside(shell: &Shell, outer: Option<Outer>) -> Result<Vec<u8>, LabError> {
    let report = run_command(shell, outer)?;
    serde_json::to_vec(&report).map_err(|e| LabError::failed("cannot write the report", e))
}

fn run_command(shell: &Shell, outer: Option<Outer>) -> Result<ShellReport, LabError> {
    remount_proc();
    let place = outer.as_ref().map_or(0, |outer| outer.place);
    let (beyond, _claim) = outer.map(|outer| (outer.attachment, outer.claim)).unzip();
    let mut topology = Topology::build(shell.mtu, Use::Shell(place))?;
    let capture =
        |end: &str| shell.pcap.as_ref().map(|p| Capture::create(&capture::named(p, end))).transpose();
    let captures = [capture("client")?, capture("server")?];
    let emulator = Emulator::start(topology.attach(beyond)?, plan(shell, &captures))?;

    for line in &shell.servers {
        serve(&topology.ends[SERVER], line, place)?;
    }
    let started = Instant::now();
    let pid = start_client(&topology.ends[CLIENT], &shell.command, place)?;
    let (exit_code, waits) = run_to_completion(pid, &topology);
    let duration = started.elapsed();

    let report = emulator.stop()?;
    topology.abandon_sockets()?;
    for capture in captures.into_iter().flatten() {
        capture.finish()?;
    }
    let run = Span::from_nanos(duration.as_nanos() as u64);
    let waits = waits.map(|waits| waits.finish(report.audit.waited, run));
    let stray = topology.dropped_by_interfaces();
    let Verdict { health, invalid_because } = judge(shell, &report.audit, stray, run, waits);
    let links = report.links.into_iter();
    let links = links
        .map(|l| LinkReport { link: l.recording, bytes_out: l.bytes_out, max_queue_bytes: l.max_queue_bytes })
        .collect();
    Ok(ShellReport { exit_code, duration_s: duration.as_secs_f64(), links, health, invalid_because })
}

/// The plan of the shell's path, with captures of client and server.
fn plan<'a>(shell: &'a Shell, captures: &[Option<Capture>; 2]) -> Plan<'a> {
    let [client, server] = [captures[0].as_ref(), captures[1].as_ref()];
    Plan {
        forward: &shell.forward,
        reverse: &shell.reverse,
        mtu: shell.mtu,
        rate: path_rate(shell),
        seed: shell.seed,
        sample: None,
        accesses: Vec::new(),
        known: KnownFlows { views: Views::new(0), extra: Arc::default(), measured_from: Time::ZERO },
        taps: [Tap::between(client, server), Tap::between(server, client)],
    }
}

/// Starts a command line at the server's end, and waits until it listens.
fn serve(end: &End, line: &str, place: usize) -> Result<(), LabError> {
    let before = listeners(end)?;
    let mut command = Command::new("/bin/sh");
    command.arg("-c").arg(line);
    let pid = start(end, command, place)
        .map_err(|e| LabError::Input(format!("cannot run the server `{line}`: {e}")))?;
    await_listener(end, before, pid, line)
}

/// Starts the shell's command.
fn start_client(end: &End, command: &[OsString], place: usize) -> Result<Pid, LabError> {
    let [program, arguments @ ..] = command else {
        return Err(LabError::Input("no command to run".to_owned()));
    };
    let mut command = Command::new(program);
    command.args(arguments);
    start(end, command, place)
        .map_err(|e| LabError::Input(format!("cannot run `{}`: {e}", program.to_string_lossy())))
}

/// Waits for the command, and samples meanwhile how long the programs at both ends wait for a
/// processor. Returns its exit code and the waits.
fn run_to_completion(pid: Pid, topology: &Topology) -> (u8, Option<WaitAudit>) {
    priority::endpoint();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (mut programs, mut waits) = (Programs::new(topology), WaitAudit::start());
        let over = &over;
        // Without it, how long programs waited is not known.
        let watcher = std::thread::Builder::new().spawn_scoped(scope, move || {
            while !over.load(Ordering::Relaxed) {
                programs.sample(&mut waits);
                std::thread::sleep(Duration::from(INTERVAL));
            }
            waits
        });
        let exit_code = wait_for(pid);
        over.store(true, Ordering::Relaxed);
        (exit_code, watcher.ok().and_then(|watcher| watcher.join().ok()))
    })
}

/// How well the machine kept up during the shell's `run`, with `stray` packets dropped on
/// interfaces.
fn judge(shell: &Shell, audit: &Audit, stray: u64, run: Span, waits: Option<Waits>) -> Verdict {
    let base_rtt =
        BuildContext::for_path(&shell.forward, &shell.reverse, Direction::Forward, shell.mtu, shell.seed)
            .base_rtt;
    let mut verdict = health::judge(audit, stray, base_rtt, run);
    let findings = waits.iter().flat_map(health::waited);
    // On paths as fast as the machine, programs wait for each other.
    match path_rate(shell).is_some_and(|rate| rate < KEEPS_UP_BELOW) {
        true => verdict.invalid_because.extend(findings),
        false => verdict.health.notes.extend(findings),
    }
    verdict.health.waits = waits;
    verdict
}

/// The highest rate of the path in either direction; `None` if it is unlimited.
fn path_rate(shell: &Shell) -> Option<Rate> {
    Some(highest_rate(&shell.forward)?.max(highest_rate(&shell.reverse)?))
}

/// The highest rate that these links can carry; `None` if it is unlimited.
fn highest_rate(links: &[LinkSpec]) -> Option<Rate> {
    links.iter().filter_map(LinkSpec::highest_rate).min()
}

/// Starts a command in an end of the path; the client's address has number `place`.
fn start(end: &End, mut command: Command, place: usize) -> Result<Pid, LabError> {
    command.env("FULLPIPE_CLIENT", Addresses::v4(CLIENT, place).to_string());
    command.env("FULLPIPE_SERVER", SERVER_ADDRESS.0.to_string());
    // SAFETY: between fork and exec only system calls are made.
    unsafe {
        command.pre_exec(|| {
            for s in [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM] {
                signal(s, SigHandler::SigDfl)?;
            }
            priority::ordinary();
            raise_ambient_capabilities()
        });
    }
    end.inside(|| {
        let child = command.spawn().map_err(|e| LabError::Input(e.to_string()))?;
        Ok(Pid::from_raw(child.id() as i32))
    })
}

/// Waits for one process, and reaps orphans meanwhile, as the first process of its namespace must.
fn wait_for(pid: Pid) -> u8 {
    loop {
        match waitpid(None, None) {
            Ok(WaitStatus::Exited(p, code)) if p == pid => return code as u8,
            Ok(WaitStatus::Signaled(p, signal, _)) if p == pid => return 128 + signal as u8,
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(_) => return 1,
        }
    }
}

/// Number of listening TCP sockets and unconnected UDP sockets at an end.
fn listeners(end: &End) -> Result<usize, LabError> {
    end.inside(|| {
        let count = |file: &str, waiting: &str| {
            let text = std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default();
            text.lines().skip(1).filter(|l| l.split_whitespace().nth(3) == Some(waiting)).count()
        };
        // TCP_LISTEN, and TCP_CLOSE, the state of an unconnected UDP socket.
        Ok(count("tcp", "0A") + count("tcp6", "0A") + count("udp", "07") + count("udp6", "07"))
    })
}

/// Waits until a server has opened its socket.
fn await_listener(end: &End, before: usize, pid: Pid, line: &str) -> Result<(), LabError> {
    let deadline = Instant::now() + Duration::from_secs(5);
    while listeners(end)? <= before {
        let flags = nix::sys::wait::WaitPidFlag::WNOHANG;
        match waitpid(pid, Some(flags)) {
            Ok(WaitStatus::Exited(_, 0)) => return Ok(()),
            Ok(WaitStatus::Exited(_, code)) => {
                return Err(LabError::Input(format!(
                    "the server `{line}` ended at once with exit code {code}"
                )));
            }
            _ => {}
        }
        if Instant::now() > deadline {
            return Err(LabError::Input(format!("the server `{line}` opened no socket within 5 s")));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
