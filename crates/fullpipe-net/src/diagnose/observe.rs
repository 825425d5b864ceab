//! Where evidence comes from: a test of ours, or the sockets of a running process.

use super::{Diagnosis, Evidence, Limit, diagnose};
use crate::client::{self, ClientError, Config, Outcome};
use crate::sample::SocketSample;
use fullpipe_experiment::statistics::quantile;
use fullpipe_kernel::sock_diag::{self, TcpSocket};
use std::io;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Streams that show what a path carries when one stream is held back by a buffer.
const MANY: u32 = 8;

/// What a sender's or receiver's end is set to.
pub(crate) fn setting(name: &str) -> Option<String> {
    std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok().map(|s| s.trim().replace('\t', " "))
}

/// The evidence of a test's first stream.
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

/// Measures against a server, and once more with several streams when a buffer was the limit. `None` when
/// the sender cannot be seen: a stock server that sends.
///
/// # Errors
/// Those of the tests.
pub fn server(config: &Config, interrupt: &AtomicBool) -> Result<Option<(Outcome, Diagnosis)>, ClientError> {
    let mut config = config.clone();
    config.params.parallel = 1;
    let outcome = client::run(&config, interrupt, &mut |_| {})?;
    let Some(mut evidence) = evidence(&outcome) else { return Ok(None) };
    let mut diagnosis = diagnose(&evidence);
    if matches!(diagnosis.limit, Limit::ReceiveWindow | Limit::SendBuffer) {
        config.params.parallel = MANY;
        let many = client::run(&config, interrupt, &mut |_| {})?;
        evidence.capacity = many.sum(!config.params.reverse).map(|s| s.goodput());
        diagnosis = diagnose(&evidence);
    }
    Ok(Some((outcome, diagnosis)))
}

/// A socket of another process.
#[derive(Clone, Debug)]
pub struct Observed {
    /// As the kernel described it.
    pub socket: TcpSocket,
    /// In plain numbers.
    pub sample: Option<SocketSample>,
    /// What held it back, if it sent something meanwhile.
    pub diagnosis: Option<Diagnosis>,
}

/// Watches the connected sockets of a process for `time` and judges those that sent something meanwhile.
///
/// # Errors
/// When the process or its sockets cannot be looked at.
pub fn process(pid: u32, time: Duration) -> io::Result<Vec<Observed>> {
    let before = sock_diag::sockets_of_process(pid)?;
    let began = Instant::now();
    std::thread::sleep(time);
    let after = sock_diag::sockets_of_process(pid)?;
    let seconds = began.elapsed().as_secs_f64();
    let judged = after.into_iter().map(|socket| {
        let old = before.iter().find(|b| b.cookie == socket.cookie).and_then(SocketSample::of_diag);
        let sample = SocketSample::of_diag(&socket);
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
    Ok(judged.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_reader_that_does_not_read_shows_as_its_window() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut reader, _) = listener.accept().unwrap();
        let local = sender.local_addr().unwrap();
        sender.set_write_timeout(Some(Duration::from_secs(120))).unwrap();
        std::thread::scope(|s| {
            s.spawn(move || while sender.write_all(&[0; 65_536]).is_ok() {});
            // Where this machine stands still while it is looked at, there is nothing to see: one of ten looks has to.
            let mut seen = Vec::new();
            loop {
                std::thread::sleep(Duration::from_millis(100));
                let watched = s.spawn(|| process(std::process::id(), Duration::from_millis(400)).unwrap());
                // A little is read, so that something is acknowledged.
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
