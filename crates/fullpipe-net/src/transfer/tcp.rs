//! The two ends of a TCP stream.
//!
//! Measured over loopback, per gigabyte at both ends together: 128-kB writes with copying reads
//! take 0.33 CPU-seconds, 1-MB writes with `MSG_TRUNC` reads 0.10; `sendfile` from memory with the
//! same reads 0.18 (4-kB pages make more fragments per segment); `MSG_ZEROCOPY` is copied on
//! loopback.

use super::{Allowance, Meter, PACKET, POLL_INTERVAL, Pacer, is_excess};
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

/// Writes blocks of up to [`DEFAULT_SEND_BLOCK`] bytes, with pauses between them at a `rate` and
/// within them as the allowance requires, until stopped, until the budget is exhausted, or until the
/// socket fails. Setting `stop` ends a blocked write if the socket has a write timeout or is shut
/// down afterwards.
///
/// # Errors
/// Socket errors, unless `stop` was set before, or an exhausted budget that is a limit.
pub(crate) fn send(
    socket: &TcpStream,
    block: usize,
    rate: Option<Rate>,
    allowance: Allowance<'_>,
    meter: &Meter,
    stop: &AtomicBool,
) -> io::Result<()> {
    let mut pace = Pacer::new(rate);
    let payload = &noise()[..block.min(DEFAULT_SEND_BLOCK)];
    while pace.wait(payload.len(), &mut || !stop.load(Relaxed)) {
        let mut left = payload;
        while !left.is_empty() {
            let portion = match allowance.portion(left.len(), PACKET, stop) {
                Ok(Some(portion)) => portion,
                Ok(None) => return Ok(()),
                Err(e) => {
                    // A test may still end in time, with less than the limit delivered.
                    while !stop.load(Relaxed) && socket::unacked(socket) > 0 {
                        std::thread::sleep(POLL_INTERVAL);
                    }
                    return if stop.load(Relaxed) { Ok(()) } else { Err(e) };
                }
            };
            match (&mut &*socket).write(&left[..portion.bytes()]) {
                Ok(0) => return Ok(()),
                Ok(n) => {
                    meter.add_bytes(n as u64);
                    portion.transferred(n);
                    left = &left[n..];
                }
                Err(_) if stop.load(Relaxed) => return Ok(()),
                Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
                Err(e) => return Err(e),
            }
        }
    }
    Ok(())
}

/// Discards bytes from the socket without copying them (`MSG_TRUNC`, tcp(7)) until its end, until
/// stopped, until the budget is exhausted, or until it fails.
///
/// # Errors
/// Socket errors, unless `stop` was set before, or more bytes than a budget that is a limit.
pub(crate) fn discard(
    stream: &TcpStream,
    allowance: Allowance<'_>,
    meter: &Meter,
    stop: &AtomicBool,
) -> io::Result<()> {
    let receive = || {
        if allowance.is_unlimited() {
            return socket::discard(stream, DISCARD_BLOCK).map(Some);
        }
        let Some(portion) = allowance.portion_to_receive(stream, DISCARD_BLOCK, stop)? else {
            return Ok(None);
        };
        let received = socket::discard(stream, portion.bytes())?;
        portion.transferred(received);
        Ok(Some(received))
    };
    loop {
        match receive() {
            Ok(None | Some(0)) => return Ok(()),
            Ok(Some(n)) => {
                meter.add_bytes(n as u64);
                // A sender that notices no end of the connection goes on.
                if stop.load(Relaxed) {
                    return Ok(());
                }
            }
            Err(_) if stop.load(Relaxed) => return Ok(()),
            Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
            // What is readable is the end, and not more data.
            Err(e) if is_excess(&e) && stream.peek(&mut [0]).is_ok_and(|n| n == 0) => return Ok(()),
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
    use crate::transfer::{Budget, TokenBucket};
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
                send(&a, 65_536, None, Allowance { budget: Some(&budget), bucket: None }, &sent, &go)
                    .unwrap();
                a.shutdown(Shutdown::Write).unwrap();
            });
            discard(&b, Allowance::default(), &received, &go).unwrap();
        });
        assert_eq!((sent.bytes(), received.bytes()), (5_000_001, 5_000_001));
    }

    #[test]
    fn a_sender_whose_peer_does_not_read_is_stopped_by_shutting_its_socket_down() {
        let (a, _b) = pair();
        let (meter, stop) = (Meter::default(), AtomicBool::new(false));
        let began = Instant::now();
        std::thread::scope(|s| {
            let sender = s.spawn(|| send(&a, DEFAULT_SEND_BLOCK, None, Allowance::default(), &meter, &stop));
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
    fn a_receiver_is_stopped_while_its_sender_goes_on() {
        let (a, b) = pair();
        let (sent, received) = (Meter::default(), Meter::default());
        let [receiver_stop, sender_stop] = [const { AtomicBool::new(false) }; 2];
        let bucket = TokenBucket::new(Rate::from_bits_per_sec(u64::MAX));
        let budget = Budget::limit(u64::MAX);
        std::thread::scope(|s| {
            s.spawn(|| send(&a, 65_536, None, Allowance::default(), &sent, &sender_stop));
            let (b, received, stop) = (&b, &received, &receiver_stop);
            for allowance in [
                Allowance::default(),
                Allowance { bucket: Some(&bucket), budget: None },
                Allowance { bucket: None, budget: Some(&budget) },
            ] {
                receiver_stop.store(false, Relaxed);
                let receiver = s.spawn(move || discard(b, allowance, received, stop));
                let before = received.bytes();
                while received.bytes() == before && !receiver.is_finished() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                receiver_stop.store(true, Relaxed);
                receiver.join().unwrap().unwrap();
            }
            sender_stop.store(true, Relaxed);
            let _ = (a.shutdown(Shutdown::Both), b.shutdown(Shutdown::Both));
        });
    }

    #[test]
    fn a_paced_reader_limits_its_sender() {
        let (a, b) = pair();
        let (sent, received, stop) = (Meter::default(), Meter::default(), AtomicBool::new(false));
        let (began, bucket) = (Instant::now(), TokenBucket::new(Rate::from_bytes_per_sec(1_000_000)));
        std::thread::scope(|s| {
            s.spawn(|| send(&a, 65_536, None, Allowance::default(), &sent, &stop));
            s.spawn(|| discard(&b, Allowance { bucket: Some(&bucket), budget: None }, &received, &stop));
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
    fn no_byte_beyond_a_limit_is_sent_or_received() {
        for of_sender in [true, false] {
            let (pairs, limit) = ([pair(), pair()], Budget::limit(3_000_001));
            let (sent, received, stop) = (Meter::default(), Meter::default(), AtomicBool::new(false));
            let limited = Allowance { budget: Some(&limit), bucket: None };
            let [by_sender, by_receiver] =
                if of_sender { [limited, Allowance::default()] } else { [Allowance::default(), limited] };
            std::thread::scope(|s| {
                // Each end closes its socket. A socket that is only shut down does not reset its
                // peer, which waits for ever if the window is closed.
                let ends = pairs.map(|(a, b)| {
                    let (sent, received, stop) = (&sent, &received, &stop);
                    let sender = s.spawn(move || send(&a, 65_536, None, by_sender, sent, stop));
                    let receiver = s.spawn(move || discard(&b, by_receiver, received, stop));
                    (sender, receiver)
                });
                for (sender, receiver) in ends {
                    let (sent, received) = (sender.join().unwrap(), receiver.join().unwrap());
                    let error = if of_sender { sent } else { received }.unwrap_err();
                    assert!(is_excess(&error) && error.to_string() == "more than 3000001 bytes", "{error}");
                }
            });
            assert_eq!(received.bytes(), 3_000_001);
        }
    }

    #[test]
    fn a_block_is_sent_no_faster_than_its_bucket() {
        let ((a, _b), bucket) = (pair(), TokenBucket::new(Rate::from_bytes_per_sec(100_000)));
        let (meter, stop, began) = (Meter::default(), AtomicBool::new(false), Instant::now());
        std::thread::scope(|s| {
            s.spawn(|| {
                send(&a, 1 << 20, None, Allowance { bucket: Some(&bucket), budget: None }, &meter, &stop)
            });
            std::thread::sleep(Duration::from_millis(200));
            stop.store(true, Relaxed);
        });
        let most = 1e5 * began.elapsed().as_secs_f64() + 1448.0;
        assert!(meter.bytes() > 1448 && meter.bytes() as f64 <= most, "{} of {most}", meter.bytes());
    }

    #[test]
    fn a_closed_peer_is_an_error() {
        let (a, b) = pair();
        drop(b);
        let (meter, stop) = (Meter::default(), AtomicBool::new(false));
        assert!(send(&a, 65_536, None, Allowance::default(), &meter, &stop).is_err());
    }
}
