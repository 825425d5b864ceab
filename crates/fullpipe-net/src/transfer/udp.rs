//! The two ends of a UDP stream.

use super::{Allowance, Meter, POLL_INTERVAL, Pacer};
use crate::iperf2::Datagram;
use crate::iperf3::{MIN_UDP_BLOCK, UdpHeader};
use fullpipe_units::Rate;
use nix::errno::Errno;
use std::io;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) fn wall_clock_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as u64)
}

/// How datagrams are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbering {
    /// iperf3, with counters of 32 or 64 bits.
    Iperf3 { wide: bool },
    /// iperf 2.
    Iperf2,
}

/// Sends numbered datagrams of `block` bytes over a connected socket until stopped or until the
/// budget is exhausted. A full device queue is not an error: the datagram is retried.
///
/// # Errors
/// Socket errors, unless `stop` was set before, or an exhausted budget that is a limit.
pub(crate) fn send_datagrams(
    socket: &UdpSocket,
    block: usize,
    numbering: Numbering,
    rate: Option<Rate>,
    allowance: Allowance<'_>,
    meter: &Meter,
    stop: &AtomicBool,
) -> io::Result<()> {
    let mut pace = Pacer::new(rate);
    let mut datagram = vec![0x5a; block.max(MIN_UDP_BLOCK)];
    let mut number = 0;
    while pace.wait(datagram.len(), &mut || !stop.load(Relaxed)) {
        if let Some(bucket) = allowance.bucket
            && !bucket.acquire(datagram.len(), &mut || !stop.load(Relaxed))
        {
            return Ok(());
        }
        let reserved = match allowance.budget {
            None => None,
            Some(budget) => match budget.reserve_datagram(datagram.len(), stop)? {
                None => return Ok(()),
                reserved => reserved,
            },
        };
        let sent_us = wall_clock_us();
        match numbering {
            Numbering::Iperf3 { wide } => {
                UdpHeader { sent_us, number: number + 1 }.write(&mut datagram, wide);
            }
            Numbering::Iperf2 => {
                Datagram { sent_us, number: number + 1, is_last: false }.write_with_header(&mut datagram);
            }
        }
        loop {
            match socket.send(&datagram) {
                Ok(_) => break,
                Err(_) if stop.load(Relaxed) => return Ok(()),
                Err(e)
                    if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
                        || e.raw_os_error() == Some(Errno::ENOBUFS as i32) =>
                {
                    std::thread::yield_now();
                }
                // The peer's port may already be closed when its ICMP message arrives; the control
                // connection reports the end of the test.
                Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => break,
                Err(e) => return Err(e),
            }
        }
        if let Some(reserved) = reserved {
            reserved.transferred(datagram.len());
        }
        number += 1;
        meter.add_bytes(datagram.len() as u64);
        meter.set_packets(number, 0, 0, 0.0);
    }
    Ok(())
}

/// Counts datagrams, gaps in their numbers, and jitter until stopped.
///
/// # Errors
/// Socket errors, unless `stop` was set before, or a sender that exceeds its allowance.
pub(crate) fn receive_datagrams(
    socket: &UdpSocket,
    wide: bool,
    allowance: Allowance<'_>,
    meter: &Meter,
    stop: &AtomicBool,
) -> io::Result<()> {
    socket.set_read_timeout(Some(POLL_INTERVAL))?;
    let mut datagram = vec![0; 65_536];
    let mut count = ReceiveStats::default();
    while !stop.load(Relaxed) {
        match socket.recv(&mut datagram) {
            Ok(n) => {
                allowance.arrived(n)?;
                // A repeated hello, or data of unknown origin.
                let Some(header) = UdpHeader::parse(&datagram[..n], wide).filter(|_| n >= 12) else {
                    continue;
                };
                count.record(header, wall_clock_us());
                meter.add_bytes(n as u64);
                meter.set_packets(count.highest, count.lost, count.out_of_order, count.jitter);
            }
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::WouldBlock
                        | io::ErrorKind::TimedOut
                        | io::ErrorKind::Interrupted
                        | io::ErrorKind::ConnectionRefused
                ) => {}
            Err(_) if stop.load(Relaxed) => return Ok(()),
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Loss, order and jitter computed from numbers and timestamps as in iperf3.
#[derive(Debug, Default)]
pub(crate) struct ReceiveStats {
    pub highest: u64,
    pub lost: u64,
    pub out_of_order: u64,
    pub jitter: f64,
    transit: Option<f64>,
}

impl ReceiveStats {
    pub fn record(&mut self, header: UdpHeader, now_us: u64) {
        if header.number > self.highest {
            self.lost = self.lost.saturating_add(header.number - 1 - self.highest);
            self.highest = header.number;
        } else {
            self.out_of_order += 1;
            self.lost = self.lost.saturating_sub(1);
        }
        let transit = (now_us as f64 - header.sent_us as f64) / 1e6;
        let change = (transit - self.transit.unwrap_or(transit)).abs();
        self.transit = Some(transit);
        self.jitter += (change - self.jitter) / 16.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::Budget;
    use std::time::{Duration, Instant};

    fn count(numbers: &[u64]) -> ReceiveStats {
        let mut count = ReceiveStats::default();
        for &number in numbers {
            count.record(UdpHeader { sent_us: 1_000 * number, number }, 1_000 * number + 500);
        }
        count
    }

    #[test]
    fn gaps_are_losses_until_a_late_datagram_arrives() {
        let c = count(&[1, 2, 5]);
        assert_eq!((c.highest, c.lost, c.out_of_order), (5, 2, 0));
        let c = count(&[1, 2, 5, 3]);
        assert_eq!((c.highest, c.lost, c.out_of_order), (5, 1, 1));
        assert_eq!(count(&[1, 2, 3]).jitter, 0.0);
    }

    #[test]
    fn jitter_moves_by_a_sixteenth_of_each_change() {
        let mut c = ReceiveStats::default();
        c.record(UdpHeader { sent_us: 0, number: 1 }, 1_000);
        c.record(UdpHeader { sent_us: 1_000, number: 2 }, 2_160);
        assert!((c.jitter - 160e-6 / 16.0).abs() < 1e-12);
    }

    #[test]
    fn an_absurd_number_does_not_overflow() {
        let c = count(&[u64::MAX / 2000, 1, u64::MAX / 1500]);
        assert!(c.lost > 0);
        let mut c = ReceiveStats::default();
        c.record(UdpHeader { sent_us: 0, number: u64::MAX }, u64::MAX);
        c.record(UdpHeader { sent_us: u64::MAX, number: 0 }, 0);
    }

    #[test]
    fn datagrams_cross_loopback_at_the_requested_rate() {
        let (a, b) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        a.connect(b.local_addr().unwrap()).unwrap();
        let (sent, received, stop) = (Meter::default(), Meter::default(), AtomicBool::new(false));
        let began = Instant::now();
        std::thread::scope(|s| {
            s.spawn(|| receive_datagrams(&b, true, Allowance::default(), &received, &stop).unwrap());
            // No more than the receiver's buffer holds if it is not scheduled.
            let budget = Budget::new(50_000);
            send_datagrams(
                &a,
                1000,
                Numbering::Iperf3 { wide: true },
                Some(Rate::from_bytes_per_sec(1_000_000)),
                Allowance { budget: Some(&budget), bucket: None },
                &sent,
                &stop,
            )
            .unwrap();
            let deadline = Instant::now() + Duration::from_secs(60);
            while received.packets() < sent.packets() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(10));
            }
            stop.store(true, Relaxed);
        });
        // The first is sent immediately.
        assert!(began.elapsed() >= Duration::from_millis(49), "{:?}", began.elapsed());
        assert_eq!((sent.packets(), sent.bytes()), (50, 50_000));
        assert_eq!((received.packets(), received.lost()), (50, 0));
    }
}
