//! The entry point of the program when the lab re-executes it as its own process.

use crate::inspect::Inspect;
use crate::run::{self, RunJob};
use crate::shell::{self, Shell};
use crate::space::{ENTRY, Line, supervise};
use crate::{LabError, Outer};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the program has called [`reenter`], which its re-executed copies need.
static ENTERED: AtomicBool = AtomicBool::new(false);

/// The job of a lab's process.
#[derive(Serialize, Deserialize)]
pub(crate) enum Job {
    Run(RunJob),
    Shell(Shell),
}

/// Must be called first in a program that runs labs: the lab's own process is the same program,
/// re-executed with a special first argument. In that process this function does not return.
///
/// ```no_run
/// fullpipe_lab::reenter();
/// // Only then arguments, threads and everything else.
/// let arguments = std::env::args();
/// ```
///
/// In test programs, which do not define `main`, use
/// [`reenter_before_main!`](crate::reenter_before_main).
pub fn reenter() {
    reenter_with(|_| Err(io::Error::other("the program calls reenter(), and not reenter_with()")));
}

/// [`reenter`] for a program that passes [`Options::inspect`](crate::Options::inspect) to runs:
/// `inspect` recreates it from its [`descriptors`](Inspect::descriptors).
pub fn reenter_with(inspect: impl FnOnce(Vec<OwnedFd>) -> io::Result<Arc<dyn Inspect>>) {
    ENTERED.store(true, Ordering::Relaxed);
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_none_or(|first| first != ENTRY) {
        return;
    }
    let number = arguments.next().and_then(|text| text.to_str()?.parse().ok()).unwrap_or(-1);
    let (mut line, job, lent) = Line::answer(number);
    let threads = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    if threads > 1 {
        line.refuse(&LabError::Failed(format!(
            "the program had {threads} threads when it called fullpipe_lab::reenter(), which must come first"
        )));
    }
    match serde_json::from_slice(&job) {
        Ok(Job::Run(job)) => {
            let inspect = || match job.inspects {
                true => inspect(lent)
                    .map(Some)
                    .map_err(|e| LabError::failed("cannot read the controllers' state", e)),
                false => Ok(None),
            };
            supervise(line, inspect, |inspect, outbox| run::inside(&job, inspect, outbox))
        }
        Ok(Job::Shell(shell)) => {
            let outer = || if shell.servers.is_empty() { Outer::here(shell.mtu) } else { Ok(None) };
            supervise(line, outer, |outer, _| shell::inside(&shell, outer))
        }
        Err(e) => line.refuse(&LabError::failed("cannot read the job", e)),
    }
}

/// Refuses to start a lab in a program that has not called [`reenter`]: its copy would run the
/// whole program.
pub(crate) fn expect_entry() -> Result<(), LabError> {
    if ENTERED.load(Ordering::Relaxed) {
        return Ok(());
    }
    Err(LabError::Failed(
        "a program that runs labs must call fullpipe_lab::reenter() at the beginning of its main (a \
         test program has fullpipe_lab::reenter_before_main!())"
            .to_owned(),
    ))
}

/// Calls [`reenter`](crate::reenter) before `main`, for tests, which do not define it; with an
/// argument, [`reenter_with`](crate::reenter_with). Use it once per program, outside of functions.
/// It relies on the C library's start-up code (glibc passes the arguments to such functions).
#[macro_export]
macro_rules! reenter_before_main {
    () => {
        $crate::reenter_before_main!(@call $crate::reenter());
    };
    (@call $call:expr) => {
        // SAFETY: an entry of `.init_array` is a function that the C library calls once, before `main`, while
        // there is one thread.
        #[used]
        #[unsafe(link_section = ".init_array")]
        static REENTER: extern "C" fn() = {
            extern "C" fn before_main() {
                $call;
            }
            before_main
        };
    };
    ($inspect:expr) => {
        $crate::reenter_before_main!(@call $crate::reenter_with($inspect));
    };
}
