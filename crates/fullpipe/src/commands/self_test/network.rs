//! A measurement over loopback.

use super::outcome::Outcome;

#[cfg(not(feature = "net"))]
pub fn serve() -> Outcome {
    Outcome::not_built_in("net")
}

#[cfg(feature = "net")]
pub use loopback::serve;

#[cfg(feature = "net")]
mod loopback {
    use super::Outcome;
    use fullpipe_net::client::{self, Config};
    use fullpipe_net::iperf3::Params;
    use fullpipe_net::server::{self, Server};
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::thread::Builder;
    use std::time::Duration;

    /// Bytes to transfer. Any machine that is not stuck transfers them within [`TIMEOUT`].
    const BYTES: u64 = 20_000_000;
    const TIMEOUT: Duration = Duration::from_secs(15);

    pub fn serve() -> Outcome {
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let config = server::Config { address: Some(here), port: 0, ..server::Config::default() };
        let server = match Server::bind(config, |_| {}) {
            Ok(server) => server,
            Err(e) => return no_loopback(&e),
        };
        let (port, handle) = (server.address().port(), server.handle());
        let params = Params { bytes: BYTES, seconds: 0, ..Params::default() };
        let config = Config { params, ..Config::new("127.0.0.1", port) };
        let late = AtomicBool::new(false);
        let outcome = std::thread::scope(|scope| {
            let serving = Builder::new().spawn_scoped(scope, move || server.run())?;
            let (done, ended) = channel::<()>();
            let late = &late;
            let watched = Builder::new().spawn_scoped(scope, move || {
                if ended.recv_timeout(TIMEOUT) == Err(RecvTimeoutError::Timeout) {
                    late.store(true, Relaxed);
                }
            });
            watched.inspect_err(|_| handle.stop())?;
            let outcome = client::run(&config, late, &mut |_| {});
            drop(done);
            handle.stop();
            // Only the listening socket can fail, which the test has noticed.
            let _ = serving.join();
            Ok(outcome)
        });
        match outcome {
            Err(e) => no_threads(&e),
            Ok(_) if late.load(Relaxed) => {
                Outcome::inconclusive(format!("20 MB over loopback took more than {} s", TIMEOUT.as_secs()))
            }
            Ok(Ok(outcome)) => {
                let received = outcome.sum(true).map_or(0, |sum| sum.delivered().0);
                let controller = outcome.streams.iter().find_map(|stream| stream.controller.clone());
                if received != BYTES {
                    return Outcome::failed(format!("{received} of {BYTES} bytes over loopback arrived"));
                }
                let controller = controller.as_deref().unwrap_or("an unknown controller");
                Outcome::works(format!("20 MB over loopback with {controller}"))
            }
            Ok(Err(e)) => Outcome::failed(e.to_string()),
        }
    }

    fn no_threads(error: &std::io::Error) -> Outcome {
        Outcome::impossible(
            format!("cannot start a thread: {error}"),
            "raise the limit of processes (`ulimit -u`, or that of the container)",
        )
    }

    fn no_loopback(error: &dyn std::fmt::Display) -> Outcome {
        Outcome::impossible(
            format!("cannot listen on 127.0.0.1: {error}"),
            "run `ip link set lo up`, or run fullpipe outside of the sandbox",
        )
    }
}
