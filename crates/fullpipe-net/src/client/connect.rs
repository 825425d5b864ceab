//! The connections of a test.

use super::{ClientError, Config, Family};
use crate::control::{Ended, Wait, readable};
use crate::iperf3::Params;
use fullpipe_kernel::socket;
use fullpipe_kernel::tcp_info::{self, TcpInfo};
use nix::sys::socket::{setsockopt, sockopt};
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// A datagram size that fits the path unfragmented, chosen as iperf3 does: the control connection's
/// MSS.
pub(super) fn datagram_size(control: &TcpStream) -> u32 {
    use crate::iperf3::{MAX_UDP_BLOCK, MIN_UDP_BLOCK};
    let mss = TcpInfo::query(control).map_or(1460, |i| i.snd_mss);
    mss.clamp(MIN_UDP_BLOCK as u32, MAX_UDP_BLOCK as u32)
}

/// Connects to the first address of the server that accepts; a stream gets the options of its test.
pub(super) fn first(
    config: &Config,
    stream: Option<&Params>,
    interrupt: &AtomicBool,
) -> Result<TcpStream, ClientError> {
    let mut failed = None;
    for address in addresses(config)? {
        match tcp(config, address, stream, interrupt) {
            Ok(socket) => return Ok(socket),
            Err(ClientError::Stream(source)) => failed = Some(ClientError::Connect { address, source }),
            Err(e) => return Err(e),
        }
    }
    Err(failed.unwrap_or(ClientError::Closed))
}

/// The addresses of the server, at least one.
pub(super) fn addresses(config: &Config) -> Result<Vec<SocketAddr>, ClientError> {
    let unresolved = |source| ClientError::Resolve {
        host: config.host.clone(),
        family: match config.family {
            None => "",
            Some(Family::V4) => " over IPv4",
            Some(Family::V6) => " over IPv6",
        },
        source,
    };
    let mut addresses: Vec<SocketAddr> =
        (config.host.as_str(), config.port).to_socket_addrs().map_err(unresolved)?.collect();
    addresses.retain(|a| match config.family {
        None => true,
        Some(Family::V4) => a.is_ipv4(),
        Some(Family::V6) => a.is_ipv6(),
    });
    if addresses.is_empty() {
        return Err(unresolved(io::Error::new(io::ErrorKind::NotFound, "no address of this family")));
    }
    Ok(addresses)
}

/// Time to wait until the next check for an interrupt; `None` when the time has passed.
fn next_wait(wait: Wait<'_>) -> Result<Option<Duration>, ClientError> {
    match wait.slice() {
        Ok(slice) => Ok(Some(slice)),
        Err(Ended::TimedOut) => Ok(None),
        Err(Ended::Interrupted) => Err(ClientError::Interrupted),
    }
}

/// Opens a TCP connection; a stream gets the socket options of its test.
pub(super) fn tcp(
    config: &Config,
    address: SocketAddr,
    stream: Option<&Params>,
    interrupt: &AtomicBool,
) -> Result<TcpStream, ClientError> {
    let wait = Wait::until(config.connect_timeout, interrupt);
    next_wait(wait)?;
    let socket = socket::tcp(address).map_err(ClientError::Stream)?;
    if let Some(name) = stream.and_then(|p| p.congestion.as_ref()) {
        tcp_info::pin(&socket, name)?;
    }
    let prepare = || -> io::Result<()> {
        if let Some(params) = stream {
            if params.window > 0 {
                socket::set_buffers(&socket, params.window as usize)?;
            }
            if params.mss > 0 {
                setsockopt(&socket, sockopt::TcpMaxSeg, &params.mss)?;
            }
            socket.set_nodelay(params.no_delay)?;
            set_tos(&socket, params.tos);
            if config.abort {
                socket.set_read_timeout(Some(Duration::from_millis(250)))?;
                socket.set_write_timeout(Some(Duration::from_millis(250)))?;
            }
        }
        if let Some(ip) = config.bind {
            socket::bind(&socket, SocketAddr::new(ip, 0))?;
        }
        socket::start_connect(&socket, address)
    };
    prepare().map_err(ClientError::Stream)?;
    while let Some(slice) = next_wait(wait)? {
        if socket::is_connected(&socket, slice).map_err(ClientError::Stream)? {
            return Ok(socket);
        }
    }
    Err(ClientError::Stream(io::ErrorKind::TimedOut.into()))
}

fn set_tos(socket: &impl AsFd, tos: u8) {
    if tos > 0 {
        socket::set_traffic_class(socket, tos);
    }
}

/// Opens a UDP socket.
pub(super) fn datagrams(
    config: &Config,
    server: SocketAddr,
    params: &Params,
) -> Result<UdpSocket, ClientError> {
    let prepare = || -> io::Result<UdpSocket> {
        let socket = socket::udp(server)?;
        let buffer = if params.window > 0 { params.window as usize } else { 4 * 1024 * 1024 };
        let _ = socket::set_buffers(&socket, buffer);
        set_tos(&socket, params.tos);
        if let Some(ip) = config.bind {
            socket::bind(&socket, SocketAddr::new(ip, 0))?;
        }
        socket.connect(server)?;
        Ok(socket)
    };
    prepare().map_err(ClientError::Stream)
}

/// Opens a UDP socket on which the server has replied.
pub(super) fn udp(
    config: &Config,
    server: SocketAddr,
    params: &Params,
    interrupt: &AtomicBool,
) -> Result<UdpSocket, ClientError> {
    use crate::iperf3::{HELLO, HELLO_REPLY, HELLO_REPLY_OLD};
    let socket = datagrams(config, server, params)?;
    // Hellos may be lost; a server that has replied ignores a second one.
    let mut datagram = vec![0; 65_536];
    for _ in 0..5 {
        socket.send(&HELLO).map_err(ClientError::Stream)?;
        let wait = Wait::until(Duration::from_secs(2), interrupt);
        while let Some(slice) = next_wait(wait)? {
            if !readable(&socket, slice).map_err(ClientError::Stream)? {
                continue;
            }
            match socket.recv(&mut datagram) {
                Ok(n) if datagram[..n] == HELLO_REPLY || datagram[..n] == HELLO_REPLY_OLD => {
                    return Ok(socket);
                }
                // Data of a reverse test can overtake the reply.
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => break,
                Err(e) => return Err(ClientError::Stream(e)),
            }
        }
    }
    let error = io::Error::new(io::ErrorKind::TimedOut, "no reply over UDP; a firewall may drop it");
    Err(ClientError::Stream(error))
}
