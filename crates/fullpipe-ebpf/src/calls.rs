//! Checks that the running kernel does not skip `struct_ops` callbacks.
//!
//! Some kernels occasionally skip a callback, and the caller then reads an undefined return value.
//! A controller that only counts its calls (`bpf/calls.bpf.c`) detects it.

use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::loader::{self, Config};
use crate::ring;
use nix::sys::socket::{setsockopt, sockopt};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Counts of callbacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Calls {
    /// `cong_control` calls made.
    pub made: u64,
    /// Calls preceded by one or more skipped calls.
    pub missed: u64,
    /// Packets that the skipped calls would have reported.
    pub packets: u64,
}

impl Calls {
    /// Whether no call was skipped.
    pub fn all_made(&self) -> bool {
        self.missed == 0
    }
}

impl std::fmt::Display for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.all_made() {
            return write!(f, "the kernel made all {} calls", self.made);
        }
        write!(f, "the kernel made {} calls and skipped at least {}", self.made, self.missed)
    }
}

/// Concurrent connections, each with its own timers.
const CONNECTIONS: usize = 4;

/// Sends over loopback for `span` and counts callbacks. The counting controller is registered
/// meanwhile, under a name unique to this process.
///
/// A kernel that skips calls does so rarely: the longer the test, the more certain the result.
///
/// # Errors
/// As for loading any controller; also if loopback is down.
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
        // The usual segment size, at as many calls as possible.
        setsockopt(&to, sockopt::TcpMaxSeg, &1448).map_err(|errno| failed(errno.into()))?;
        to.set_write_timeout(Some(span + Duration::from_secs(5))).map_err(failed)?;
        ends.push((to, listener.accept().map_err(failed)?.0));
    }
    std::thread::scope(|scope| {
        let until = Instant::now() + span;
        for (to, from) in &mut ends {
            // Without a sender its receiver would wait for ever, so the receiver is started last.
            std::thread::Builder::new().spawn_scoped(scope, move || {
                let piece = [0; 16 << 10];
                while Instant::now() < until && to.write_all(&piece).is_ok() {}
                let _ = to.shutdown(std::net::Shutdown::Write);
            })?;
            std::thread::Builder::new().spawn_scoped(scope, move || {
                let mut piece = [0; 64 << 10];
                while from.read(&mut piece).is_ok_and(|bytes| bytes > 0) {}
            })?;
        }
        Ok(())
    })
    .map_err(failed)?;
    let [made, missed, packets] = ring::counts(loaded.object())?;
    Ok(Calls { made, missed, packets })
}
