//! Starts fullpipe so that it does not outlive the test, even if that is killed.

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Ends `command`'s process with the thread that starts it, even if that is killed.
pub fn tied(command: &mut Command) -> &mut Command {
    // SAFETY: prctl is a single system call, safe between fork and exec.
    unsafe { command.pre_exec(|| set_pdeathsig(Signal::SIGKILL).map_err(Into::into)) }
}

/// The program under test: Cargo's, or the one that `FULLPIPE_PROGRAM` names.
pub fn path() -> std::path::PathBuf {
    std::env::var_os("FULLPIPE_PROGRAM").unwrap_or_else(|| env!("CARGO_BIN_EXE_fullpipe").into()).into()
}

/// The program with empty standard input.
pub fn fullpipe() -> Command {
    let mut command = Command::new(path());
    tied(&mut command).stdin(Stdio::null());
    command
}

/// `fullpipe serve` on a free port, until it is dropped.
pub struct Serving {
    pub child: Child,
    /// The line that names its port.
    pub first: String,
}

impl Serving {
    /// The server and its further output, which must be read, or the server blocks.
    pub fn start(options: &[&str]) -> (Serving, BufReader<ChildStderr>) {
        let mut command = fullpipe();
        command.args(["serve", "--port", "0"]).args(options).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut first = String::new();
        log.read_line(&mut first).unwrap();
        (Serving { child, first }, log)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The output of `command`. After `limit` it is interrupted as by Ctrl-C, and killed if it does not
/// exit.
pub fn output_within(command: &mut Command, limit: Duration) -> Option<Output> {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    std::thread::scope(|scope| {
        let (ended, wait) = channel::<()>();
        let watchdog = scope.spawn(move || {
            let mut late = false;
            for (signal, limit) in [(Signal::SIGINT, limit), (Signal::SIGKILL, Duration::from_secs(20))] {
                if wait.recv_timeout(limit) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
                late = true;
                let _ = kill(pid, signal);
            }
            late
        });
        let output = child.wait_with_output().unwrap();
        drop(ended);
        (!watchdog.join().unwrap()).then_some(output)
    })
}
