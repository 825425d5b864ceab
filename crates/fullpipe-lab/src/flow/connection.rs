//! The set-up of a connection: its address and its socket options.

use crate::LabError;
use crate::emulator::FIRST_PORT;
use crate::inspect::Inspect;
use crate::kernel;
use crate::space::{Addresses, CLIENT, SERVER};
use fullpipe_experiment::scenario::{Direction, FlowSpec};
use fullpipe_kernel::socket;
use fullpipe_kernel::tcp_info::{PinError, pin};
use fullpipe_units::{Span, Time};
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, connect, getsockopt, listen,
    setsockopt, sockopt,
};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// One connection of the scenario.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    /// Its number, which determines its port.
    pub(crate) number: usize,
    pub(crate) spec: FlowSpec,
    /// The kernel's name of the steerable controller, if the flow has a trained one.
    pub(crate) steered: Option<String>,
    /// Number of the receiver's address that it connects to.
    pub(crate) address_number: usize,
    /// Socket buffers in bytes, if they differ from the namespace's limits.
    pub(crate) receive_buffer: Option<u64>,
    pub(crate) send_buffer: Option<u64>,
}

/// Options of all connections of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StartOptions {
    pub(crate) ipv6: bool,
    /// Most unsent bytes in a socket (`TCP_NOTSENT_LOWAT`).
    pub(crate) unsent: u32,
}

fn socket_error(e: Errno) -> LabError {
    match e {
        Errno::EMFILE | Errno::ENFILE => LabError::Impossible(
            "too many open files for this many flows: raise `ulimit -n`, or run fewer".to_owned(),
        ),
        Errno::ENOBUFS | Errno::ENOMEM => {
            LabError::Impossible(format!("no memory for another socket ({e}): free some, or run fewer flows"))
        }
        _ => LabError::failed("cannot open a socket", e),
    }
}

impl Connection {
    /// The end that it sends from.
    pub(crate) fn sending_end(&self) -> usize {
        match self.spec.direction {
            Direction::Forward => CLIENT,
            Direction::Reverse => SERVER,
        }
    }

    /// When it starts, unless it waits for another.
    pub(crate) fn start(&self) -> Option<Time> {
        self.spec.start.at().map(|at| Time::ZERO + at)
    }

    /// When its application stops.
    pub(crate) fn stop(&self) -> Time {
        self.spec.stop.map_or(Time::NEVER, |s: Span| Time::ZERO + s)
    }

    fn port(&self) -> u16 {
        FIRST_PORT + self.number as u16
    }

    /// Opens the receiving socket; the calling thread is in the receiving end.
    pub(crate) fn listen(&self, start_options: StartOptions) -> Result<TcpListener, LabError> {
        let any: IpAddr =
            if start_options.ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
        let socket = open(any)?;
        if let Some(bytes) = self.receive_buffer {
            // The kernel doubles the value for its own structures (socket(7)).
            setsockopt(&socket, sockopt::RcvBuf, &((bytes / 2) as usize)).map_err(socket_error)?;
            let got = getsockopt(&socket, sockopt::RcvBuf).unwrap_or_default() as u64;
            if got + 1 < bytes {
                return Err(LabError::Impossible(format!(
                    "flows with different receive buffers need sockets of {bytes} bytes, and the kernel \
                     gives {got}: as root, `sysctl net.core.rmem_max={}`",
                    bytes / 2
                )));
            }
        }
        setsockopt(&socket, sockopt::ReuseAddr, &true).map_err(socket_error)?;
        bind(socket.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(any, self.port())))
            .map_err(socket_error)?;
        listen(&socket, Backlog::MAXALLOWABLE).map_err(socket_error)?;
        Ok(TcpListener::from(socket))
    }

    /// Opens the sending socket with all its options; the calling thread is in the sending end.
    pub(crate) fn prepare(&self, start_options: StartOptions) -> Result<TcpStream, LabError> {
        let socket = open(self.peer(start_options).ip())?;
        let name = self.steered.clone().or_else(|| kernel::controller(&self.spec.cc));
        pin(&socket, name.as_deref().unwrap_or(&self.spec.cc)).map_err(controller_error)?;
        setsockopt(&socket, sockopt::TcpNoDelay, &true).map_err(socket_error)?;
        if let Some(bytes) = self.send_buffer {
            setsockopt(&socket, sockopt::SndBuf, &((bytes / 2) as usize)).map_err(socket_error)?;
        }
        if self.spec.paced {
            socket::set_max_pacing_rate(&socket, ANY_RATE)
                .map_err(|e| LabError::failed("SO_MAX_PACING_RATE", e))?;
        }
        socket::set_notsent_lowat(&socket, start_options.unsent)
            .map_err(|e| LabError::failed("TCP_NOTSENT_LOWAT", e))?;
        Ok(TcpStream::from(socket))
    }

    /// Adds `socket` to `inspect`, if it supports its controller.
    pub(crate) fn watch(&self, socket: &TcpStream, inspect: &dyn Inspect) -> Option<io::Result<()>> {
        let name = kernel::controller(&self.spec.cc)?;
        inspect.supports(&name).then(|| inspect.watch(socket.as_fd(), self.number))
    }

    /// Sends the SYN.
    pub(crate) fn connect(&self, socket: &TcpStream, start_options: StartOptions) -> io::Result<()> {
        match connect(socket.as_raw_fd(), &SockaddrStorage::from(self.peer(start_options))) {
            Ok(()) | Err(Errno::EINPROGRESS) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    fn peer(&self, start_options: StartOptions) -> SocketAddr {
        let end = 1 - self.sending_end();
        let address: IpAddr = if start_options.ipv6 {
            Addresses::v6(end, self.address_number).into()
        } else {
            Addresses::v4(end, self.address_number).into()
        };
        SocketAddr::new(address, self.port())
    }
}

fn open(address: IpAddr) -> Result<OwnedFd, LabError> {
    let family = if address.is_ipv6() { AddressFamily::Inet6 } else { AddressFamily::Inet };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let socket = nix::sys::socket::socket(family, SockType::Stream, flags, None).map_err(socket_error)?;
    // Sockets are closed after the path. With undelivered data they would keep retransmitting, and so
    // keep their network namespace and their controller's program alive, for minutes.
    socket::reset_on_close(&socket).map_err(|e| LabError::failed("cannot open a socket", e))?;
    Ok(socket)
}

/// The largest finite bound on the pacing rate, 34 Gbit/s: with a bound TCP paces itself, at the
/// rate at which the `fq` queue discipline would pace it (`sk_pacing_status`).
const ANY_RATE: u32 = u32::MAX - 1;

/// The controllers that `fullpipe cc load` can load.
const LOADABLE: [&str; 3] = ["bbr1", "bbr3", "hybla"];

fn controller_error(e: PinError) -> LabError {
    match e {
        PinError::Unknown { ref name, .. } if LOADABLE.contains(&name.trim_start_matches("fp_")) => {
            LabError::Impossible(format!("{e}; `fullpipe cc load {name}` as root loads it as eBPF"))
        }
        PinError::Name(_) => LabError::Input(e.to_string()),
        _ => LabError::Impossible(e.to_string()),
    }
}
