//! The connections of a test.

use super::{ClientError, Config, Family};
use crate::iperf3::Params;
use fullpipe_kernel::tcp_info::TcpInfo;
use socket2::{Domain, Protocol as Layer, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant};

/// A datagram that fits the path unfragmented, as iperf3 chooses it: the control connection's MSS.
pub(super) fn datagram_size(control: &TcpStream) -> u32 {
    use crate::iperf3::{MAX_UDP_BLOCK, MIN_UDP_BLOCK};
    let mss = TcpInfo::of(control).map_or(1460, |i| i.snd_mss);
    mss.clamp(MIN_UDP_BLOCK as u32, MAX_UDP_BLOCK as u32)
}

pub(super) fn control(config: &Config) -> Result<TcpStream, ClientError> {
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
    let mut failed = unresolved(io::Error::new(io::ErrorKind::NotFound, "it has none of this kind"));
    for address in addresses {
        match tcp(config, address, None) {
            Ok(socket) => return Ok(socket.into()),
            Err(ClientError::Stream(source)) => failed = ClientError::Connect { address, source },
            Err(e) => return Err(e),
        }
    }
    Err(failed)
}

/// A TCP connection; a stream's has the socket options its test asks for.
pub(super) fn tcp(
    config: &Config,
    address: SocketAddr,
    stream: Option<&Params>,
) -> Result<Socket, ClientError> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Layer::TCP))
        .map_err(ClientError::Stream)?;
    if let Some(name) = stream.and_then(|p| p.congestion.as_ref()) {
        fullpipe_kernel::tcp_info::pin(&socket, name)?;
    }
    let prepare = || -> io::Result<()> {
        if let Some(params) = stream {
            if params.window > 0 {
                socket.set_recv_buffer_size(params.window as usize)?;
                socket.set_send_buffer_size(params.window as usize)?;
            }
            if params.mss > 0 {
                socket.set_tcp_mss(params.mss)?;
            }
            socket.set_tcp_nodelay(params.no_delay)?;
            set_tos(&socket, params.tos);
            if config.abort {
                socket.set_read_timeout(Some(Duration::from_millis(250)))?;
                socket.set_write_timeout(Some(Duration::from_millis(250)))?;
            }
        }
        if let Some(ip) = config.bind {
            socket.bind(&SocketAddr::new(ip, 0).into())?;
        }
        socket.connect_timeout(&address.into(), config.connect_timeout)
    };
    prepare().map_err(ClientError::Stream)?;
    Ok(socket)
}

fn set_tos(socket: &Socket, tos: u8) {
    if tos > 0 {
        // Of the two, the one of the socket's family takes effect.
        let _ = (socket.set_tos_v4(tos.into()), socket.set_tclass_v6(tos.into()));
    }
}

/// A UDP socket that the server has answered on.
pub(super) fn udp(config: &Config, server: SocketAddr, params: &Params) -> Result<UdpSocket, ClientError> {
    use crate::iperf3::{HELLO, HELLO_REPLY, HELLO_REPLY_OLD};
    let exchange = || -> io::Result<UdpSocket> {
        let socket = Socket::new(Domain::for_address(server), Type::DGRAM, Some(Layer::UDP))?;
        let buffer = if params.window > 0 { params.window as usize } else { 4 * 1024 * 1024 };
        let _ = (socket.set_recv_buffer_size(buffer), socket.set_send_buffer_size(buffer));
        set_tos(&socket, params.tos);
        if let Some(ip) = config.bind {
            socket.bind(&SocketAddr::new(ip, 0).into())?;
        }
        socket.connect(&server.into())?;
        let socket: UdpSocket = socket.into();
        // Datagrams get lost; a server that has answered ignores a second hello.
        let mut datagram = vec![0; 65_536];
        socket.set_read_timeout(Some(Duration::from_secs(2)))?;
        for _ in 0..5 {
            socket.send(&HELLO)?;
            let deadline = Instant::now() + Duration::from_secs(2);
            while Instant::now() < deadline {
                match socket.recv(&mut datagram) {
                    Ok(n) if datagram[..n] == HELLO_REPLY || datagram[..n] == HELLO_REPLY_OLD => {
                        return Ok(socket);
                    }
                    // Data of a test in reverse can overtake the answer.
                    Ok(_) => {}
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                    Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => break,
                    Err(e) => return Err(e),
                }
            }
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "no answer over UDP: a firewall may drop it"))
    };
    exchange().map_err(ClientError::Stream)
}
