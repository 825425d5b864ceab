//! Sockets step by step, where the standard library takes them all at once: options before a connection is asked for, and a
//! bound on the time that it may take.
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
/// When the system lacks the family, or has no more sockets.
pub fn tcp(address: SocketAddr) -> io::Result<TcpStream> {
    Ok(open(address, SockType::Stream)?.into())
}

/// A UDP socket of the family of `address`, not bound yet; closed on exec.
///
/// # Errors
/// When the system lacks the family, or has no more sockets.
pub fn udp(address: SocketAddr) -> io::Result<UdpSocket> {
    Ok(open(address, SockType::Datagram)?.into())
}

fn open(address: SocketAddr, kind: SockType) -> nix::Result<OwnedFd> {
    let family = if address.is_ipv6() { AddressFamily::Inet6 } else { AddressFamily::Inet };
    call::socket(family, kind, SockFlag::SOCK_CLOEXEC, None)
}

/// Gives the socket an address of this machine; port 0 takes a free one.
///
/// # Errors
/// When the address is not this machine's, or taken.
pub fn bind(socket: &impl AsFd, address: SocketAddr) -> io::Result<()> {
    Ok(call::bind(socket.as_fd().as_raw_fd(), &SockaddrStorage::from(address))?)
}

/// Makes a bound socket listen. As many connections may wait to be accepted as the kernel lets any (`net.core.somaxconn`):
/// a C library's SOMAXCONN is a number of its own, 128 in musl.
///
/// # Errors
/// When another listens there.
pub fn listen(socket: TcpStream) -> io::Result<TcpListener> {
    call::listen(&socket, Backlog::MAXALLOWABLE)?;
    Ok(OwnedFd::from(socket).into())
}

/// Connects, or gives up after `time`. The socket blocks afterwards.
///
/// # Errors
/// The connection's; [`io::ErrorKind::TimedOut`] when there was no answer in time.
pub fn connect_timeout(socket: &TcpStream, address: SocketAddr, time: Duration) -> io::Result<()> {
    start_connect(socket, address)?;
    let began = Instant::now();
    loop {
        let left = time.saturating_sub(began.elapsed());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if is_connected(socket, left)? {
            return Ok(());
        }
    }
}

/// Sends a SYN and waits for nothing: [`is_connected`] tells what became of it. The socket blocks afterwards.
///
/// # Errors
/// When there is no way to that address, or the socket is connected already.
pub fn start_connect(socket: &TcpStream, address: SocketAddr) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    let begun = call::connect(socket.as_raw_fd(), &SockaddrStorage::from(address));
    socket.set_nonblocking(false)?;
    match begun {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// Whether a connection that was begun stands. Waits for that at most `time`, in whole milliseconds and at least one; a
/// signal ends the wait, too.
///
/// # Errors
/// The connection's, such as that it was refused.
pub fn is_connected(socket: &TcpStream, time: Duration) -> io::Result<bool> {
    let wait = PollTimeout::try_from(time.max(Duration::from_millis(1))).unwrap_or(PollTimeout::MAX);
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

/// Asks for buffers of so many bytes in both directions. The kernel doubles the number for what it keeps beside the data, holds
/// it to `net.core.rmem_max` and `wmem_max`, and no longer changes the sizes itself.
///
/// # Errors
/// The first of the two, when the kernel refuses; the other one is asked for all the same.
pub fn set_buffers(socket: &impl AsFd, bytes: usize) -> io::Result<()> {
    let received = setsockopt(socket, sockopt::RcvBuf, &bytes);
    let sent = setsockopt(socket, sockopt::SndBuf, &bytes);
    Ok(received.and(sent)?)
}

/// The sizes of the buffers (send, receive) in bytes, as the kernel counts them; 0 for one that it does not tell.
pub fn buffers(socket: &impl AsFd) -> (usize, usize) {
    (getsockopt(socket, sockopt::SndBuf).unwrap_or(0), getsockopt(socket, sockopt::RcvBuf).unwrap_or(0))
}

/// Marks what the socket sends: DSCP and ECN bits, as IPv4's TOS or IPv6's traffic class. The kernel may refuse: a mark is a wish.
pub fn set_traffic_class(socket: &impl AsFd, class: u8) {
    let class = class.into();
    // Of the two, the one of the socket's family takes effect.
    let _ = (setsockopt(socket, sockopt::Ipv4Tos, &class), setsockopt(socket, sockopt::Ipv6TClass, &class));
}

/// Has TCP pace what it sends, at up to `most` bytes a second and at the rate that its controller would tell the `fq` queueing
/// discipline (`sk_pacing_status`).
///
/// # Errors
/// When the socket refuses.
pub fn pace(socket: &impl AsFd, most: u32) -> io::Result<()> {
    crate::sockopt::set(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &most.to_ne_bytes())
}

/// Has the socket take no more to send while `bytes` of it have not been sent (`TCP_NOTSENT_LOWAT`, tcp(7)).
///
/// # Errors
/// When the socket refuses.
pub fn set_notsent_lowat(socket: &impl AsFd, bytes: u32) -> io::Result<()> {
    crate::sockopt::set(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, &bytes.to_ne_bytes())
}

/// Has the close to come reset the connection: nothing more of what was given to the kernel goes out, and nothing of it is
/// remembered.
///
/// # Errors
/// When the socket refuses.
pub fn reset_on_close(socket: &impl AsFd) -> io::Result<()> {
    Ok(setsockopt(socket, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 0 })?)
}

/// Bytes written to the socket that the peer has not acknowledged (`SIOCOUTQ`); 0 where the kernel does not tell.
pub fn unacked(socket: &TcpStream) -> u64 {
    nix::ioctl_read_bad!(siocoutq, libc::TIOCOUTQ, libc::c_int);
    let mut bytes: libc::c_int = 0;
    // SAFETY: SIOCOUTQ writes one int, and `bytes` is one that outlives the call.
    let result = unsafe { siocoutq(socket.as_raw_fd(), &raw mut bytes) };
    if result.is_ok() { bytes.max(0) as u64 } else { 0 }
}

/// Takes up to `most` bytes that come in, and leaves them nowhere: with `MSG_TRUNC` the kernel throws them away uncopied
/// (tcp(7)). Gives how many; 0 at the stream's end.
///
/// # Errors
/// The connection's; a time-out of the socket is [`io::ErrorKind::WouldBlock`].
pub fn discard(socket: &TcpStream, most: usize) -> io::Result<usize> {
    // SAFETY: with MSG_TRUNC a TCP socket discards the bytes and writes nothing to the buffer (tcp(7)), so
    // there need not be one; `TcpStream` makes sure that the socket is TCP's.
    let n = unsafe { libc::recv(socket.as_raw_fd(), std::ptr::null_mut(), most, libc::MSG_TRUNC) };
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

    /// Longer than any machine holds a test up.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Both loopback addresses, or the one that this machine has.
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

    /// A listener that answers no SYN: one connection fills it, and nobody takes that.
    fn silent(address: SocketAddr) -> (TcpListener, SocketAddr, TcpStream) {
        let (listener, address) = listener(address);
        call::listen(&listener, Backlog::new(0).unwrap()).unwrap();
        let first = tcp(address).unwrap();
        connect_timeout(&first, address, PATIENCE).unwrap();
        let waits = poll(&mut [PollFd::new(listener.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE);
        assert_eq!(waits, Ok(1));
        (listener, address, first)
    }

    fn pair() -> (TcpStream, TcpStream) {
        let (listener, address) = listener((Ipv4Addr::LOCALHOST, 0).into());
        let socket = tcp(address).unwrap();
        connect_timeout(&socket, address, PATIENCE).unwrap();
        (socket, listener.accept().unwrap().0)
    }

    fn flags(socket: &impl AsRawFd) -> String {
        std::fs::read_to_string(format!("/proc/self/fdinfo/{}", socket.as_raw_fd())).unwrap()
    }

    /// The bits of open(2) that a descriptor has.
    fn has(socket: &impl AsRawFd, bit: i32) -> bool {
        let flags = flags(socket);
        let octal = flags.lines().find_map(|line| line.strip_prefix("flags:")).unwrap();
        i32::from_str_radix(octal.trim(), 8).unwrap() & bit != 0
    }

    #[test]
    fn a_connection_stands_in_both_families_and_blocks() {
        for address in loopbacks() {
            let (listener, address) = listener(address);
            let socket = tcp(address).unwrap();
            connect_timeout(&socket, address, PATIENCE).unwrap();
            assert!(!has(&socket, libc::O_NONBLOCK) && has(&socket, libc::O_CLOEXEC));
            assert!(has(&listener, libc::O_CLOEXEC));
            let (mut taken, peer) = listener.accept().unwrap();
            assert_eq!(peer, socket.local_addr().unwrap());
            taken.write_all(b"x").unwrap();
            (&socket).read_exact(&mut [0]).unwrap();
        }
    }

    #[test]
    fn datagrams_pass_in_both_families() {
        for address in loopbacks() {
            let (a, b) = (udp(address).unwrap(), udp(address).unwrap());
            bind(&b, address).unwrap();
            a.connect(b.local_addr().unwrap()).unwrap();
            a.send(b"x").unwrap();
            b.set_read_timeout(Some(PATIENCE)).unwrap();
            assert_eq!(b.recv_from(&mut [0; 8]).unwrap(), (1, a.local_addr().unwrap()));
            assert!(has(&a, libc::O_CLOEXEC));
        }
    }

    #[test]
    fn nobody_there_is_a_refusal() {
        for address in loopbacks() {
            // Bound, so that nobody else takes the port; it does not listen.
            let taken = tcp(address).unwrap();
            bind(&taken, address).unwrap();
            let socket = tcp(address).unwrap();
            let e = connect_timeout(&socket, taken.local_addr().unwrap(), PATIENCE).unwrap_err();
            assert_eq!(e.raw_os_error(), Some(libc::ECONNREFUSED), "{e}");
            assert!(!has(&socket, libc::O_NONBLOCK));
        }
    }

    #[test]
    fn silence_is_waited_for_as_long_as_was_said() {
        for address in loopbacks() {
            let (_listener, address, _first) = silent(address);
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
    fn whoever_begins_to_connect_may_look_around() {
        let (listener, address, first) = silent((Ipv4Addr::LOCALHOST, 0).into());
        let socket = tcp(address).unwrap();
        start_connect(&socket, address).unwrap();
        assert!(!is_connected(&socket, Duration::ZERO).unwrap());
        // With room again, the SYN that is sent anew is answered.
        drop((listener.accept().unwrap(), first));
        let began = Instant::now();
        while !is_connected(&socket, Duration::from_millis(100)).unwrap() {
            assert!(began.elapsed() < PATIENCE, "no SYN was answered");
        }
        assert_eq!(socket.peer_addr().unwrap(), address);
    }

    #[test]
    fn signals_do_not_end_the_wait_nor_make_it_longer() {
        extern "C" fn nothing(_: libc::c_int) {}
        let action = SigAction::new(SigHandler::Handler(nothing), SaFlags::empty(), SigSet::empty());
        // SAFETY: a handler that does nothing is safe to run at any moment, and nothing else here uses the signal.
        unsafe { sigaction(Signal::SIGUSR2, &action) }.unwrap();
        let (_listener, address, _first) = silent((Ipv4Addr::LOCALHOST, 0).into());
        let (tell, told) = mpsc::channel::<Pthread>();
        let waits = std::thread::spawn(move || {
            let socket = tcp(address).unwrap();
            tell.send(pthread_self()).unwrap();
            let began = Instant::now();
            let e = connect_timeout(&socket, address, Duration::from_millis(400)).unwrap_err();
            (e.kind(), began.elapsed())
        });
        let thread = told.recv().unwrap();
        for _ in 0..10 {
            // On a busy machine it may be through.
            let _ = pthread_kill(thread, Signal::SIGUSR2);
            std::thread::sleep(Duration::from_millis(20));
        }
        let (kind, waited) = waits.join().unwrap();
        assert_eq!(kind, io::ErrorKind::TimedOut);
        assert!(waited >= Duration::from_millis(399) && waited < PATIENCE, "{waited:?}");
    }

    #[test]
    fn an_address_that_is_taken_or_not_ours_is_an_error() {
        let (_listener, address) = listener((Ipv4Addr::LOCALHOST, 0).into());
        let errno = |address| bind(&tcp(address).unwrap(), address).unwrap_err().raw_os_error();
        assert_eq!(errno(address), Some(libc::EADDRINUSE));
        assert_eq!(errno((Ipv4Addr::new(192, 0, 2, 1), 0).into()), Some(libc::EADDRNOTAVAIL));
    }

    #[test]
    fn the_kernel_grants_twice_the_buffer_asked_for() {
        let (a, _b) = pair();
        set_buffers(&a, 50_000).unwrap();
        assert_eq!(buffers(&a), (100_000, 100_000));
        let datagrams = udp((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        set_buffers(&datagrams, 60_000).unwrap();
        assert_eq!(buffers(&datagrams), (120_000, 120_000));
    }

    #[test]
    fn a_mark_is_set_in_the_family_of_the_socket() {
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
    fn a_close_that_resets_is_told_as_one() {
        let (a, mut b) = pair();
        reset_on_close(&a).unwrap();
        drop(a);
        assert_eq!(b.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }

    #[test]
    fn what_is_discarded_is_counted_and_acknowledged() {
        let (mut a, b) = pair();
        a.write_all(&[7; 1000]).unwrap();
        assert_eq!((discard(&b, 300).unwrap(), discard(&b, 10_000).unwrap()), (300, 700));
        let began = Instant::now();
        while unacked(&a) > 0 {
            assert!(began.elapsed() < PATIENCE);
            std::thread::yield_now();
        }
        b.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
        assert_eq!(discard(&b, 1).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(a);
        assert_eq!(discard(&b, 1).unwrap(), 0);
    }
}
