//! Idle and loaded latency.
//!
//! A fullpipe server echoes probes on a separate connection and adds its clock: the RTT is exact,
//! and the increase of each one-way delay over its minimum is known although the clocks differ by
//! an unknown constant. With a stock server only the sockets' estimates are available.

use super::Sample;
use crate::control::{Ended, Wait, readable};
use crate::iperf3::{Cookie, extension};
use fullpipe_experiment::statistics::quantile;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const IDLE_PROBE_INTERVAL: Duration = Duration::from_millis(20);
const LOADED_PROBE_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum time for idle probes, also on long paths.
const MAX_IDLE_TIME: Duration = Duration::from_secs(2);
/// Timeout for a whole echo.
const ECHO_TIMEOUT: Duration = Duration::from_secs(5);

/// RTTs in seconds.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Latency {
    /// Median before the load.
    pub idle: Option<f64>,
    /// Median under load.
    pub loaded: Option<f64>,
    /// 99th percentile under load, or the maximum of fewer probes.
    pub loaded_p99: Option<f64>,
    /// Median queueing delay upstream (towards the server).
    pub added_forward: Option<f64>,
    /// Median queueing delay downstream.
    pub added_back: Option<f64>,
    /// Source of the figures: `probes` or `sockets`.
    pub source: &'static str,
}

impl Latency {
    /// From the sockets' estimates: the control connection's RTT before the load, the senders'
    /// smoothed RTT during it.
    pub(super) fn from_sockets<'a>(idle: Option<f64>, samples: impl Iterator<Item = &'a Sample>) -> Latency {
        let mut loaded: Vec<f64> = samples
            .filter_map(|s| match (&s.socket, &s.receiver) {
                (Some(socket), _) => Some(socket.rtt_us),
                (None, Some(receiver)) => Some(receiver.rcv_rtt_us).filter(|&us| us > 0),
                _ => None,
            })
            .map(|us| us as f64 / 1e6)
            .collect();
        Latency {
            idle,
            loaded: quantile(&mut loaded, 0.5),
            loaded_p99: quantile(&mut loaded, 0.99),
            source: "sockets",
            ..Latency::default()
        }
    }
}

/// One probe, in seconds: RTT, and each one-way delay plus an unknown constant.
#[derive(Clone, Copy)]
struct Probe {
    at: Instant,
    rtt: f64,
    forward: f64,
    back: f64,
    loaded: bool,
}

/// A thread that sends probes.
pub(super) struct Probes {
    probes: Arc<Mutex<Vec<Probe>>>,
    loaded: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
}

impl Probes {
    /// Sends `idle` probes over the idle path unless interrupted, then continues in a thread.
    pub fn start(
        socket: TcpStream,
        cookie: &Cookie,
        idle: usize,
        interrupt: &AtomicBool,
    ) -> io::Result<Probes> {
        socket.set_nodelay(true)?;
        let mut opening = *cookie.as_bytes();
        if let Some(last) = opening.last_mut() {
            *last = extension::ECHO_MARK;
        }
        (&mut &socket).write_all(&opening)?;
        let origin = Instant::now();
        let mut probes = Vec::with_capacity(1024);
        while probes.len() < idle && origin.elapsed() < MAX_IDLE_TIME {
            probes.push(probe(&socket, origin, false, Wait::until(ECHO_TIMEOUT, interrupt))?);
            std::thread::sleep(IDLE_PROBE_INTERVAL);
        }
        let probes = Arc::new(Mutex::new(probes));
        let (loaded, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let shared = (Arc::clone(&probes), Arc::clone(&loaded), Arc::clone(&stop));
        // The thread is not joined: its last echo may be delayed by the load.
        std::thread::Builder::new().stack_size(128 * 1024).spawn(move || {
            let (probes, loaded, stop) = shared;
            while !stop.load(Relaxed) {
                if loaded.load(Relaxed) {
                    let Ok(one) = probe(&socket, origin, true, Wait::until(ECHO_TIMEOUT, &stop)) else {
                        return;
                    };
                    if loaded.load(Relaxed) {
                        probes.lock().unwrap_or_else(PoisonError::into_inner).push(one);
                    }
                }
                std::thread::sleep(LOADED_PROBE_INTERVAL);
            }
        })?;
        Ok(Probes { probes, loaded, stop })
    }

    /// Sets whether the path is loaded.
    pub fn set_loaded(&self, on: bool) {
        self.loaded.store(on, Relaxed);
    }

    /// The median RTT over the last `span`.
    pub fn median_since(&self, span: Duration) -> Option<f64> {
        let probes = self.probes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rtts: Vec<f64> =
            probes.iter().rev().take_while(|p| p.loaded && p.at.elapsed() <= span).map(|p| p.rtt).collect();
        quantile(&mut rtts, 0.5)
    }

    /// Stops the thread and summarises the probes.
    pub fn finish(self) -> Latency {
        let probes = self.probes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let values = |loaded: bool, value: fn(&Probe) -> f64| -> Vec<f64> {
            probes.iter().filter(|p| p.loaded == loaded).map(value).collect()
        };
        let added = |value: fn(&Probe) -> f64| {
            let idle = quantile(&mut values(false, value), 0.5)?;
            Some((quantile(&mut values(true, value), 0.5)? - idle).max(0.0))
        };
        Latency {
            idle: quantile(&mut values(false, |p| p.rtt), 0.5),
            loaded: quantile(&mut values(true, |p| p.rtt), 0.5),
            loaded_p99: quantile(&mut values(true, |p| p.rtt), 0.99),
            added_forward: added(|p| p.forward),
            added_back: added(|p| p.back),
            source: "probes",
        }
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
    }
}

/// Sends one probe and waits for its echo.
fn probe(mut socket: &TcpStream, origin: Instant, loaded: bool, wait: Wait<'_>) -> io::Result<Probe> {
    let sent = origin.elapsed().as_nanos() as u64;
    let mut bytes = [0; extension::PROBE_LEN];
    bytes[..8].copy_from_slice(&sent.to_be_bytes());
    socket.write_all(&bytes)?;
    let mut filled = 0;
    while filled < bytes.len() {
        let slice = wait.slice().map_err(|ended| match ended {
            Ended::Interrupted => io::ErrorKind::Interrupted,
            Ended::TimedOut => io::ErrorKind::TimedOut,
        })?;
        if readable(socket, slice)? {
            match socket.read(&mut bytes[filled..])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                n => filled += n,
            }
        }
    }
    let back = origin.elapsed().as_nanos() as u64;
    let [_, _, _, _, _, _, _, _, server @ ..] = bytes;
    let server = u64::from_be_bytes(server) as f64;
    Ok(Probe {
        at: Instant::now(),
        rtt: (back - sent) as f64 / 1e9,
        forward: (server - sent as f64) / 1e9,
        back: (back as f64 - server) / 1e9,
        loaded,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (socket, listener.accept().unwrap().0)
    }

    #[test]
    fn a_partial_echo_is_not_waited_for_once_stopped() {
        let (socket, mut peer) = pair();
        let stop = AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                peer.write_all(&[0]).unwrap();
                stop.store(true, Relaxed);
            });
            let wait = Wait::until(Duration::from_secs(60), &stop);
            let error = probe(&socket, Instant::now(), false, wait).err().unwrap();
            assert_eq!(error.kind(), io::ErrorKind::Interrupted);
        });
    }

    #[test]
    fn an_echo_byte_by_byte_does_not_extend_its_deadline() {
        let (socket, mut peer) = pair();
        let stop = AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(move || {
                // Complete only long after the deadline; each byte is well within it.
                for _ in 0..extension::PROBE_LEN {
                    std::thread::sleep(Duration::from_millis(100));
                    if peer.write_all(&[0]).is_err() {
                        return;
                    }
                }
            });
            let wait = Wait::until(Duration::from_millis(400), &stop);
            let error = probe(&socket, Instant::now(), false, wait).err().unwrap();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            drop(socket);
        });
    }

    #[test]
    fn quantiles_of_few_values_are_observed_values() {
        assert_eq!(quantile(&mut [], 0.5), None);
        assert_eq!(quantile(&mut [3.0, 1.0, 2.0], 0.5), Some(2.0));
        assert_eq!(quantile(&mut [3.0, 1.0, 2.0], 0.99), Some(3.0));
    }
}
