//! Sources of evidence: a test, or the sockets of a running process.

use super::{Diagnosis, Evidence, Limit, diagnose};
use crate::client::{self, ClientError, Config, Outcome};
use crate::sample::SocketSample;
use fullpipe_experiment::statistics::quantile;
use fullpipe_kernel::sock_diag::{self, TcpSocket};
use std::io;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Number of streams that measure a path's capacity when one stream is limited by a buffer.
const PARALLEL_STREAMS: u32 = 8;

/// A TCP sysctl of this host.
pub(crate) fn setting(name: &str) -> Option<String> {
    std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok().map(|s| s.trim().replace('\t', " "))
}

/// The evidence from a test's first stream.
pub fn evidence(outcome: &Outcome) -> Option<Evidence> {
    let stream = outcome.streams.first()?;
    let omit = f64::from(outcome.params.omit);
    let samples: Vec<_> = outcome
        .samples
        .iter()
        .filter(|s| s.stream == stream.id && s.seconds >= omit)
        .filter_map(|s| s.socket.as_ref().map(|socket| (s.seconds, socket)))
        .collect();
    let (first, last) = (samples.first()?, samples.last()?);
    let mut rtts: Vec<f64> = samples.iter().map(|(_, s)| s.rtt_us as f64 / 1e6).collect();
    let mut windows: Vec<u64> = samples.iter().filter_map(|(_, s)| s.snd_wnd).collect();
    windows.sort_unstable();
    let (ours, theirs) = (
        (setting("tcp_rmem"), setting("tcp_wmem")),
        (outcome.server_rmem.clone(), outcome.server_wmem.clone()),
    );
    let (sender, receiver) = if stream.sends { (ours, theirs) } else { (theirs, ours) };
    Some(Evidence {
        seconds: last.0 - first.0,
        socket: last.1.since(first.1),
        largest_window: windows.last().copied().unwrap_or(0),
        min_rtt: last.1.min_rtt_us.unwrap_or(0) as f64 / 1e6,
        rtt: quantile(&mut rtts, 0.5)?,
        capacity: None,
        receiver_rmem: receiver.0,
        sender_wmem: sender.1,
    })
}

/// Runs a test against a server, and another with several streams if a buffer was the limit. `None`
/// if the sender is not visible: a stock server that sends.
///
/// # Errors
/// As for the tests.
pub fn server(config: &Config, interrupt: &AtomicBool) -> Result<Option<(Outcome, Diagnosis)>, ClientError> {
    let mut config = config.clone();
    config.params.parallel = 1;
    let outcome = client::run(&config, interrupt, &mut |_| {})?;
    let Some(mut evidence) = evidence(&outcome) else { return Ok(None) };
    let mut diagnosis = diagnose(&evidence);
    if matches!(diagnosis.limit, Limit::ReceiveWindow | Limit::SendBuffer) {
        config.params.parallel = PARALLEL_STREAMS;
        let many = client::run(&config, interrupt, &mut |_| {})?;
        evidence.capacity = many.sum(!config.params.reverse).map(|s| s.goodput());
        diagnosis = diagnose(&evidence);
    }
    Ok(Some((outcome, diagnosis)))
}

/// A socket of another process.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The kernel's description.
    pub socket: TcpSocket,
    /// A sample in plain numbers.
    pub sample: Option<SocketSample>,
    /// The diagnosis, if it sent data during the observation.
    pub diagnosis: Option<Diagnosis>,
}

/// Observes the connected sockets of a process for `time` and diagnoses those that sent data.
///
/// # Errors
/// If the process or its sockets cannot be inspected.
pub fn process(pid: u32, time: Duration) -> io::Result<Vec<Observed>> {
    let before = sock_diag::sockets_of_process(pid)?;
    let began = Instant::now();
    std::thread::sleep(time);
    let after = sock_diag::sockets_of_process(pid)?;
    let seconds = began.elapsed().as_secs_f64();
    let observed = after.into_iter().map(|socket| {
        let old = before.iter().find(|b| b.cookie == socket.cookie).and_then(SocketSample::from_diag);
        let sample = SocketSample::from_diag(&socket);
        let diagnosis = sample.as_ref().zip(old).and_then(|(sample, old)| {
            let socket = sample.since(&old);
            (socket.bytes_acked.unwrap_or(0) > 0 || socket.busy_us.unwrap_or(0) > 0).then(|| {
                diagnose(&Evidence {
                    seconds,
                    largest_window: sample.snd_wnd.unwrap_or(0),
                    min_rtt: sample.min_rtt_us.unwrap_or(0) as f64 / 1e6,
                    rtt: sample.rtt_us as f64 / 1e6,
                    sender_wmem: setting("tcp_wmem"),
                    socket,
                    ..Evidence::default()
                })
            })
        });
        Observed { socket, sample, diagnosis }
    });
    Ok(observed.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_slow_reader_is_diagnosed_as_a_full_receive_window() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut reader, _) = listener.accept().unwrap();
        let local = sender.local_addr().unwrap();
        sender.set_write_timeout(Some(Duration::from_secs(120))).unwrap();
        std::thread::scope(|s| {
            s.spawn(move || while sender.write_all(&[0; 65_536]).is_ok() {});
            // A stalled machine shows nothing: one of ten observations must succeed.
            let mut seen = Vec::new();
            loop {
                std::thread::sleep(Duration::from_millis(100));
                let watched = s.spawn(|| process(std::process::id(), Duration::from_millis(400)).unwrap());
                // Read a little, so that data is acknowledged.
                while !watched.is_finished() {
                    reader.read_exact(&mut [0; 100_000]).unwrap();
                    std::thread::sleep(Duration::from_millis(20));
                }
                let sockets = watched.join().unwrap();
                let found = sockets.into_iter().find(|s| s.socket.local == local).unwrap();
                if found.diagnosis.as_ref().is_some_and(|d| d.limit == Limit::ReceiveWindow) {
                    break;
                }
                seen.push(found);
                assert!(seen.len() < 10, "{seen:#?}");
            }
            drop(reader);
        });
    }
}
