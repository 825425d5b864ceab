//! The two ends of a TCP stream.
//!
//! Measured over loopback, per gigabyte at both ends together: 128-kB writes with copying reads
//! take 0.33 CPU-seconds, 1-MB writes with `MSG_TRUNC` reads 0.10; `sendfile` from memory with the
//! same reads 0.18 (4-kB pages make more fragments per segment); `MSG_ZEROCOPY` is copied on
//! loopback.

use super::{Budget, Meter, Pacer};
use fullpipe_kernel::socket;
use fullpipe_units::Rate;
use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Bytes per write if the user did not choose: large to save system calls, but within a last-level
/// cache.
pub const DEFAULT_SEND_BLOCK: usize = 1024 * 1024;

/// Bytes discarded per system call.
pub(crate) const DISCARD_BLOCK: usize = 4 * 1024 * 1024;

/// Writes blocks of up to [`DEFAULT_SEND_BLOCK`] bytes, with pauses between them at a `rate`, until
/// stopped, until the budget is exhausted, or until the socket fails. Setting `stop` ends a blocked
/// write if the socket has a write timeout or is shut down afterwards.
///
/// # Errors
/// Socket errors, unless `stop` was set before.
pub fn send(
    mut socket: &TcpStream,
    block: usize,
    rate: Option<Rate>,
    budget: Option<&Budget>,
    meter: &Meter,
    stop: &AtomicBool,
) -> io::Result<()> {
    let mut pace = Pacer::new(rate);
    let payload = &noise()[..block.min(DEFAULT_SEND_BLOCK)];
    loop {
        let wanted = budget.map_or(payload.len() as u64, |b| b.reserve(payload.len() as u64)) as usize;
        if wanted == 0 || !pace.wait(wanted, &mut || !stop.load(Relaxed)) {
            return Ok(());
        }
        let mut left = &payload[..wanted];
        while !left.is_empty() {
            match socket.write(left) {
                Ok(0) => return Ok(()),
                Ok(n) => {
                    meter.add_bytes(n as u64);
                    left = &left[n..];
                }
                Err(_) if stop.load(Relaxed) => return Ok(()),
                Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
                Err(e) => return Err(e),
            }
        }
    }
}

/// Discards bytes from the socket without copying them (`MSG_TRUNC`, tcp(7)) until its end, until
/// stopped, or until it fails.
///
/// # Errors
/// Socket errors, unless `stop` was set before.
pub fn discard(stream: &TcpStream, rate: Option<Rate>, meter: &Meter, stop: &AtomicBool) -> io::Result<()> {
    let mut pace = Pacer::new(rate);
    let max = pace.quantum(DISCARD_BLOCK, 16 * 1024);
    loop {
        match socket::discard(stream, max) {
            Ok(0) => return Ok(()),
            Ok(n) => {
                meter.add_bytes(n as u64);
                if !pace.wait(n, &mut || !stop.load(Relaxed)) {
                    return Ok(());
                }
            }
            Err(_) if stop.load(Relaxed) => return Ok(()),
            Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
            Err(e) => return Err(e),
        }
    }
}

/// A block of [`DEFAULT_SEND_BLOCK`] incompressible bytes (xorshift64), identical in every process
/// and shared by all streams.
pub fn noise() -> &'static [u8] {
    static NOISE: OnceLock<Vec<u8>> = OnceLock::new();
    NOISE.get_or_init(|| {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let words = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        });
        words.take(DEFAULT_SEND_BLOCK / 8).flatten().collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Shutdown, TcpListener};
    use std::time::{Duration, Instant};

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (a, listener.accept().unwrap().0)
    }

    #[test]
    fn every_byte_of_a_budget_arrives() {
        let (a, b) = pair();
        let (sent, received, go) = (Meter::default(), Meter::default(), AtomicBool::new(false));
        let budget = Budget::new(5_000_001);
        std::thread::scope(|s| {
            s.spawn(|| {
                send(&a, 65_536, None, Some(&budget), &sent, &go).unwrap();
                a.shutdown(Shutdown::Write).unwrap();
            });
            discard(&b, None, &received, &go).unwrap();
        });
        assert_eq!((sent.bytes(), received.bytes()), (5_000_001, 5_000_001));
    }

    #[test]
    fn a_sender_whose_peer_does_not_read_is_stopped_by_shutting_its_socket_down() {
        let (a, _b) = pair();
        let (meter, stop) = (Meter::default(), AtomicBool::new(false));
        let began = Instant::now();
        std::thread::scope(|s| {
            let sender = s.spawn(|| send(&a, DEFAULT_SEND_BLOCK, None, None, &meter, &stop));
            while socket::unacked(&a) == 0 && meter.bytes() == 0 {
                assert!(began.elapsed() < Duration::from_secs(60), "nothing was sent");
                std::thread::sleep(Duration::from_millis(10));
            }
            std::thread::sleep(Duration::from_millis(50));
            stop.store(true, Relaxed);
            a.shutdown(Shutdown::Both).unwrap();
            sender.join().unwrap().unwrap();
        });
        assert!(began.elapsed() < Duration::from_secs(120));
    }

    #[test]
    fn a_paced_reader_limits_its_sender() {
        let (a, b) = pair();
        let (sent, received, stop) = (Meter::default(), Meter::default(), AtomicBool::new(false));
        let began = Instant::now();
        std::thread::scope(|s| {
            s.spawn(|| send(&a, 65_536, None, None, &sent, &stop));
            s.spawn(|| discard(&b, Some(Rate::from_bytes_per_sec(1_000_000)), &received, &stop));
            std::thread::sleep(Duration::from_millis(500));
            stop.store(true, Relaxed);
            let _ = (a.shutdown(Shutdown::Both), b.shutdown(Shutdown::Both));
        });
        // The rate times the elapsed time, 100 ms of catching up, and one read.
        let max = 1e6 * (began.elapsed().as_secs_f64() + 0.1) + 32_768.0;
        assert!((received.bytes() as f64) <= max, "{} of {max}", received.bytes());
        assert!(sent.bytes() > 0 && received.bytes() > 0);
    }

    #[test]
    fn a_closed_peer_is_an_error() {
        let (a, b) = pair();
        drop(b);
        let (meter, stop) = (Meter::default(), AtomicBool::new(false));
        assert!(send(&a, 65_536, None, None, &meter, &stop).is_err());
    }
}
