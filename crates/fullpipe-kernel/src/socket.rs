//! Sockets step by step, where the standard library combines the steps: options before connecting,
//! and connection timeouts.
//!
//! ```
//! use fullpipe_kernel::{socket, tcp_info};
//! use std::net::TcpListener;
//! use std::time::Duration;
//!
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let address = listener.local_addr()?;
//! let socket = socket::tcp(address)?;
//! tcp_info::pin(&socket, "reno")?;
//! socket::connect_timeout(&socket, address, Duration::from_secs(1))?;
//! assert_eq!(socket.peer_addr()?, address);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    self as call, AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, getsockopt, setsockopt,
    sockopt,
};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// A TCP socket of the family of `address`, not connected yet; closed on exec.
///
/// # Errors
/// When the address family is unsupported or descriptors are exhausted.
pub fn tcp(address: SocketAddr) -> io::Result<TcpStream> {
    Ok(open(address, SockType::Stream)?.into())
}

/// A UDP socket of the family of `address`, not bound yet; closed on exec.
///
/// # Errors
/// When the address family is unsupported or descriptors are exhausted.
pub fn udp(address: SocketAddr) -> io::Result<UdpSocket> {
    Ok(open(address, SockType::Datagram)?.into())
}

fn open(address: SocketAddr, kind: SockType) -> nix::Result<OwnedFd> {
    let family = if address.is_ipv6() { AddressFamily::Inet6 } else { AddressFamily::Inet };
    call::socket(family, kind, SockFlag::SOCK_CLOEXEC, None)
}

/// Binds the socket to a local address; port 0 selects a free port.
///
/// # Errors
/// When the address is not local or is in use.
pub fn bind(socket: &impl AsFd, address: SocketAddr) -> io::Result<()> {
    Ok(call::bind(socket.as_fd().as_raw_fd(), &SockaddrStorage::from(address))?)
}

/// Makes a bound socket listen, with the maximum backlog that the kernel permits
/// (`net.core.somaxconn`): SOMAXCONN of the C library may be smaller, 128 in musl.
///
/// # Errors
/// When another socket listens on the address.
pub fn listen(socket: TcpStream) -> io::Result<TcpListener> {
    call::listen(&socket, Backlog::MAXALLOWABLE)?;
    Ok(OwnedFd::from(socket).into())
}

/// Connects with a timeout. The socket is blocking afterwards.
///
/// # Errors
/// The connection error; [`io::ErrorKind::TimedOut`] after `timeout`.
pub fn connect_timeout(socket: &TcpStream, address: SocketAddr, timeout: Duration) -> io::Result<()> {
    start_connect(socket, address)?;
    let began = Instant::now();
    loop {
        let left = timeout.saturating_sub(began.elapsed());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if is_connected(socket, left)? {
            return Ok(());
        }
    }
}

/// Makes the kernel probe an idle connection after `idle` seconds, every `interval` seconds, and close
/// it after `probes` without an answer (tcp(7)).
///
/// # Errors
/// If an option cannot be set.
pub fn keep_alive(socket: &TcpStream, idle: u32, interval: u32, probes: u32) -> io::Result<()> {
    setsockopt(socket, sockopt::KeepAlive, &true)?;
    setsockopt(socket, sockopt::TcpKeepIdle, &idle)?;
    setsockopt(socket, sockopt::TcpKeepInterval, &interval)?;
    setsockopt(socket, sockopt::TcpKeepCount, &probes)?;
    Ok(())
}

/// Starts to connect without waiting: [`is_connected`] returns the result. The socket is blocking
/// afterwards.
///
/// # Errors
/// When the address has no route, or the socket is already connected.
pub fn start_connect(socket: &TcpStream, address: SocketAddr) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    let started = call::connect(socket.as_raw_fd(), &SockaddrStorage::from(address));
    socket.set_nonblocking(false)?;
    match started {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// Whether a connection that was started is established. Waits at most `timeout`, in whole
/// milliseconds and at least one; a signal also ends the wait.
///
/// # Errors
/// The connection error, such as a refused connection.
pub fn is_connected(socket: &TcpStream, timeout: Duration) -> io::Result<bool> {
    let wait = PollTimeout::try_from(timeout.max(Duration::from_millis(1))).unwrap_or(PollTimeout::MAX);
    let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLIN | PollFlags::POLLOUT)];
    match poll(&mut fds, wait) {
        Ok(0) | Err(Errno::EINTR) => return Ok(false),
        Ok(_) => {}
        Err(e) => return Err(e.into()),
    }
    let broken = fds[0].revents().is_some_and(|e| e.intersects(PollFlags::POLLHUP | PollFlags::POLLERR));
    match socket.take_error()? {
        Some(e) => Err(e),
        None if broken => Err(io::Error::other("no error set after POLLHUP")),
        None => Ok(true),
    }
}

/// Sets the size of the receive and send buffers. The kernel doubles the number for its overhead,
/// limits it to `net.core.rmem_max` and `wmem_max`, and stops tuning the sizes automatically.
///
/// # Errors
/// The first error of the two; both are attempted.
pub fn set_buffers(socket: &impl AsFd, bytes: usize) -> io::Result<()> {
    let received = setsockopt(socket, sockopt::RcvBuf, &bytes);
    let sent = setsockopt(socket, sockopt::SndBuf, &bytes);
    Ok(received.and(sent)?)
}

/// The sizes of the send and receive buffers in bytes, with kernel overhead; 0 if unknown.
pub fn buffers(socket: &impl AsFd) -> (usize, usize) {
    (getsockopt(socket, sockopt::SndBuf).unwrap_or(0), getsockopt(socket, sockopt::RcvBuf).unwrap_or(0))
}

/// Sets the DSCP and ECN bits of sent packets, as IPv4 TOS or IPv6 traffic class. Errors are
/// ignored: the mark is best-effort.
pub fn set_traffic_class(socket: &impl AsFd, class: u8) {
    let class = class.into();
    // The one of the socket's family takes effect.
    let _ = (setsockopt(socket, sockopt::Ipv4Tos, &class), setsockopt(socket, sockopt::Ipv6TClass, &class));
}

/// Enables pacing by TCP itself (`sk_pacing_status`), at the rate of its congestion controller and
/// at most `bytes_per_second`.
///
/// # Errors
/// The error of setsockopt(2).
pub fn set_max_pacing_rate(socket: &impl AsFd, bytes_per_second: u32) -> io::Result<()> {
    crate::sockopt::set(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &bytes_per_second.to_ne_bytes())
}

/// Makes the socket unwritable while `bytes` or more are unsent (`TCP_NOTSENT_LOWAT`, tcp(7)).
///
/// # Errors
/// The error of setsockopt(2).
pub fn set_notsent_lowat(socket: &impl AsFd, bytes: u32) -> io::Result<()> {
    crate::sockopt::set(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, &bytes.to_ne_bytes())
}

/// Makes closing reset the connection: unsent data is discarded, and there is no `TIME_WAIT`.
///
/// # Errors
/// The error of setsockopt(2).
pub fn reset_on_close(socket: &impl AsFd) -> io::Result<()> {
    Ok(setsockopt(socket, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 0 })?)
}

/// Bytes written to the socket and not acknowledged by the peer (`SIOCOUTQ`); 0 if unknown.
pub fn unacked(socket: &impl AsFd) -> u64 {
    nix::ioctl_read_bad!(siocoutq, libc::TIOCOUTQ, libc::c_int);
    let mut bytes: libc::c_int = 0;
    // SAFETY: SIOCOUTQ writes one int, and `bytes` is one that outlives the call.
    let result = unsafe { siocoutq(socket.as_fd().as_raw_fd(), &raw mut bytes) };
    if result.is_ok() { bytes.max(0) as u64 } else { 0 }
}

/// Receives and discards up to `max` bytes without copying them (`MSG_TRUNC`, tcp(7)). Returns
/// their number; 0 at the end of the stream.
///
/// # Errors
/// The connection error; a receive timeout is [`io::ErrorKind::WouldBlock`].
pub fn discard(socket: &TcpStream, max: usize) -> io::Result<usize> {
    // SAFETY: with MSG_TRUNC a TCP socket discards the bytes and writes nothing to the buffer (tcp(7)),
    // so there need not be one; `TcpStream` guarantees a TCP socket.
    let n = unsafe { libc::recv(socket.as_raw_fd(), std::ptr::null_mut(), max, libc::MSG_TRUNC) };
    if n >= 0 { Ok(n as usize) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::pthread::{Pthread, pthread_kill, pthread_self};
    use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, Ipv6Addr};
    use std::sync::mpsc;

    /// Longer than any plausible delay of a test.
    const TEST_TIMEOUT: Duration = Duration::from_secs(60);

    /// The loopback addresses of this machine.
    fn loopbacks() -> impl Iterator<Item = SocketAddr> {
        let all: [SocketAddr; 2] = [(Ipv4Addr::LOCALHOST, 0).into(), (Ipv6Addr::LOCALHOST, 0).into()];
        all.into_iter().filter(|address| address.is_ipv4() || UdpSocket::bind(address).is_ok())
    }

    fn listener(address: SocketAddr) -> (TcpListener, SocketAddr) {
        let socket = tcp(address).unwrap();
        bind(&socket, address).unwrap();
        let listener = listen(socket).unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    /// A listener that does not answer SYNs: its backlog is full.
    fn full_listener(address: SocketAddr) -> (TcpListener, SocketAddr, TcpStream) {
        let (listener, address) = listener(address);
        call::listen(&listener, Backlog::new(0).unwrap()).unwrap();
        let first = tcp(address).unwrap();
        connect_timeout(&first, address, TEST_TIMEOUT).unwrap();
        let waits = poll(&mut [PollFd::new(listener.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE);
        assert_eq!(waits, Ok(1));
        (listener, address, first)
    }

    fn pair() -> (TcpStream, TcpStream) {
        let (listener, address) = listener((Ipv4Addr::LOCALHOST, 0).into());
        let socket = tcp(address).unwrap();
        connect_timeout(&socket, address, TEST_TIMEOUT).unwrap();
        (socket, listener.accept().unwrap().0)
    }

    fn flags(socket: &impl AsRawFd) -> String {
        std::fs::read_to_string(format!("/proc/self/fdinfo/{}", socket.as_raw_fd())).unwrap()
    }

    /// Whether a descriptor has a flag of open(2).
    fn has(socket: &impl AsRawFd, bit: i32) -> bool {
        let flags = flags(socket);
        let octal = flags.lines().find_map(|line| line.strip_prefix("flags:")).unwrap();
        i32::from_str_radix(octal.trim(), 8).unwrap() & bit != 0
    }

    #[test]
    fn connections_work_in_both_families_and_block() {
        for address in loopbacks() {
            let (listener, address) = listener(address);
            let socket = tcp(address).unwrap();
            connect_timeout(&socket, address, TEST_TIMEOUT).unwrap();
            assert!(!has(&socket, libc::O_NONBLOCK) && has(&socket, libc::O_CLOEXEC));
            assert!(has(&listener, libc::O_CLOEXEC));
            let (mut accepted, peer) = listener.accept().unwrap();
            assert_eq!(peer, socket.local_addr().unwrap());
            accepted.write_all(b"x").unwrap();
            (&socket).read_exact(&mut [0]).unwrap();
        }
    }

    #[test]
    fn datagrams_work_in_both_families() {
        for address in loopbacks() {
            let (a, b) = (udp(address).unwrap(), udp(address).unwrap());
            bind(&b, address).unwrap();
            a.connect(b.local_addr().unwrap()).unwrap();
            a.send(b"x").unwrap();
            b.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
            assert_eq!(b.recv_from(&mut [0; 8]).unwrap(), (1, a.local_addr().unwrap()));
            assert!(has(&a, libc::O_CLOEXEC));
        }
    }

    #[test]
    fn a_port_without_listener_refuses() {
        for address in loopbacks() {
            // Bound, so that no other socket gets the port, but not listening.
            let bound = tcp(address).unwrap();
            bind(&bound, address).unwrap();
            let socket = tcp(address).unwrap();
            let e = connect_timeout(&socket, bound.local_addr().unwrap(), TEST_TIMEOUT).unwrap_err();
            assert_eq!(e.raw_os_error(), Some(libc::ECONNREFUSED), "{e}");
            assert!(!has(&socket, libc::O_NONBLOCK));
        }
    }

    #[test]
    fn connecting_times_out_as_requested() {
        for address in loopbacks() {
            let (_listener, address, _first) = full_listener(address);
            let socket = tcp(address).unwrap();
            let began = Instant::now();
            let e = connect_timeout(&socket, address, Duration::from_millis(120)).unwrap_err();
            assert_eq!((e.kind(), e.raw_os_error()), (io::ErrorKind::TimedOut, None), "{e}");
            assert!(began.elapsed() >= Duration::from_millis(119), "{:?}", began.elapsed());
            assert!(!has(&socket, libc::O_NONBLOCK));
            let e = connect_timeout(&tcp(address).unwrap(), address, Duration::ZERO).unwrap_err();
            assert_eq!(e.kind(), io::ErrorKind::TimedOut);
        }
    }

    #[test]
    fn connecting_can_be_polled() {
        let (listener, address, first) = full_listener((Ipv4Addr::LOCALHOST, 0).into());
        let socket = tcp(address).unwrap();
        start_connect(&socket, address).unwrap();
        assert!(!is_connected(&socket, Duration::ZERO).unwrap());
        // With room in the backlog, the retransmitted SYN is answered.
        drop((listener.accept().unwrap(), first));
        let began = Instant::now();
        while !is_connected(&socket, Duration::from_millis(100)).unwrap() {
            assert!(began.elapsed() < TEST_TIMEOUT, "no SYN was answered");
        }
        assert_eq!(socket.peer_addr().unwrap(), address);
    }

    #[test]
    fn signals_do_not_change_the_timeout() {
        extern "C" fn nothing(_: libc::c_int) {}
        let action = SigAction::new(SigHandler::Handler(nothing), SaFlags::empty(), SigSet::empty());
        // SAFETY: a handler that does nothing is safe to run at any moment, and nothing else here uses the
        // signal.
        unsafe { sigaction(Signal::SIGUSR2, &action) }.unwrap();
        let (_listener, address, _first) = full_listener((Ipv4Addr::LOCALHOST, 0).into());
        let (sender, receiver) = mpsc::channel::<Pthread>();
        let waits = std::thread::spawn(move || {
            let socket = tcp(address).unwrap();
            sender.send(pthread_self()).unwrap();
            let began = Instant::now();
            let e = connect_timeout(&socket, address, Duration::from_millis(400)).unwrap_err();
            (e.kind(), began.elapsed())
        });
        let thread = receiver.recv().unwrap();
        for _ in 0..10 {
            // On a busy machine, the thread may have finished.
            let _ = pthread_kill(thread, Signal::SIGUSR2);
            std::thread::sleep(Duration::from_millis(20));
        }
        let (kind, waited) = waits.join().unwrap();
        assert_eq!(kind, io::ErrorKind::TimedOut);
        assert!(waited >= Duration::from_millis(399) && waited < TEST_TIMEOUT, "{waited:?}");
    }

    #[test]
    fn used_or_foreign_addresses_are_errors() {
        let (_listener, address) = listener((Ipv4Addr::LOCALHOST, 0).into());
        let errno = |address| bind(&tcp(address).unwrap(), address).unwrap_err().raw_os_error();
        assert_eq!(errno(address), Some(libc::EADDRINUSE));
        assert_eq!(errno((Ipv4Addr::new(192, 0, 2, 1), 0).into()), Some(libc::EADDRNOTAVAIL));
    }

    #[test]
    fn the_kernel_doubles_buffer_sizes() {
        let (a, _b) = pair();
        set_buffers(&a, 50_000).unwrap();
        assert_eq!(buffers(&a), (100_000, 100_000));
        let datagrams = udp((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        set_buffers(&datagrams, 60_000).unwrap();
        assert_eq!(buffers(&datagrams), (120_000, 120_000));
    }

    #[test]
    fn traffic_class_is_set_in_the_socket_family() {
        for address in loopbacks() {
            let socket = tcp(address).unwrap();
            set_traffic_class(&socket, 0x28);
            let got = match address {
                SocketAddr::V4(_) => getsockopt(&socket, sockopt::Ipv4Tos),
                SocketAddr::V6(_) => getsockopt(&socket, sockopt::Ipv6TClass),
            };
            assert_eq!(got, Ok(0x28));
        }
    }

    #[test]
    fn reset_on_close_resets_the_peer() {
        let (a, mut b) = pair();
        reset_on_close(&a).unwrap();
        drop(a);
        assert_eq!(b.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }

    #[test]
    fn discarded_data_is_counted_and_acknowledged() {
        let (mut a, b) = pair();
        a.write_all(&[7; 1000]).unwrap();
        assert_eq!((discard(&b, 300).unwrap(), discard(&b, 10_000).unwrap()), (300, 700));
        let began = Instant::now();
        while unacked(&a) > 0 {
            assert!(began.elapsed() < TEST_TIMEOUT);
            std::thread::yield_now();
        }
        b.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        assert_eq!(discard(&b, 1).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(a);
        assert_eq!(discard(&b, 1).unwrap(), 0);
    }
}
