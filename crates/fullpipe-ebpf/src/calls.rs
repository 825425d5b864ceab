//! Does the running kernel make every call to a controller that it should?
//!
//! There are kernels on which a `struct_ops` callback is now and then not run, and whoever made the call reads an
//! undefined value. A controller that only counts tells (`bpf/calls.bpf.c`).

use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::loader::{self, Config};
use crate::ring;
use nix::sys::socket::{setsockopt, sockopt};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Calls {
    /// Calls of `cong_control` that ran.
    pub made: u64,
    /// Times that one or more before them had not.
    pub missed: u64,
    /// Packets that those would have been told of.
    pub packets: u64,
}

impl Calls {
    /// Whether the kernel made every call that was counted.
    pub fn all_made(&self) -> bool {
        self.missed == 0
    }
}

impl std::fmt::Display for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.all_made() {
            return write!(f, "the kernel made all of {} calls", self.made);
        }
        write!(f, "beside {} calls the kernel did not make {} or more", self.made, self.missed)
    }
}

/// Connections that send at once, each by its own timer.
const CONNECTIONS: usize = 4;

/// Sends over loopback for `span` and counts. The counting controller is registered meanwhile, under a name that only this
/// process has: others may be counting, too.
///
/// A kernel that skips calls does so only in certain moments, so that none counted is no proof: the longer, the surer.
///
/// # Errors
/// As for loading any controller; also when loopback is down.
pub fn count_calls(span: Duration) -> Result<Calls> {
    let name = &format!("fp_c{}", std::process::id());
    let object = object!("calls");
    let mut loaded = loader::load_object(object, name, &Kernel::detect()?, Config::default())?;
    let _link = loaded.attach()?;
    let failed = |error: std::io::Error| {
        Error::impossible(
            format!("calls cannot be counted over loopback: {error}"),
            "check that loopback is up",
        )
    };
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let mut ends = Vec::new();
    for _ in 0..CONNECTIONS {
        let to = TcpStream::connect(address).map_err(failed)?;
        setsockopt(&to, sockopt::TcpCongestion, &name.as_str().into())
            .map_err(|errno| failed(errno.into()))?;
        // Of the usual size, and as many small ones as there is time for.
        setsockopt(&to, sockopt::TcpMaxSeg, &1448).map_err(|errno| failed(errno.into()))?;
        to.set_write_timeout(Some(span + Duration::from_secs(5))).map_err(failed)?;
        ends.push((to, listener.accept().map_err(failed)?.0));
    }
    std::thread::scope(|scope| {
        let until = Instant::now() + span;
        for (to, from) in &mut ends {
            scope.spawn(move || {
                let piece = [0; 16 << 10];
                while Instant::now() < until && to.write_all(&piece).is_ok() {}
                let _ = to.shutdown(std::net::Shutdown::Write);
            });
            scope.spawn(move || {
                let mut piece = [0; 64 << 10];
                while from.read(&mut piece).is_ok_and(|bytes| bytes > 0) {}
            });
        }
    });
    let [made, missed, packets] = ring::counts(loaded.object())?;
    Ok(Calls { made, missed, packets })
}
