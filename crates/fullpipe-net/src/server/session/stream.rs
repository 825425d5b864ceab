//! One stream of a test, at the server.

use crate::iperf3::Params;
use crate::server::admission::Permit;
use crate::transfer::{Allowance, DEFAULT_SEND_BLOCK, Endpoint, Numbering, StreamOptions, Transport};
use fullpipe_kernel::socket;
use fullpipe_units::Rate;
use nix::sys::socket::{setsockopt, sockopt};
use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Poll interval of threads whose streams will be reset at the end.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// One stream at this end.
pub(super) struct Stream {
    pub endpoint: Endpoint,
    /// Released when the socket is closed.
    pub _permit: Permit,
}

impl Stream {
    pub fn run(&self, params: &Params, allowance: Allowance<'_>, stop: &AtomicBool) -> io::Result<()> {
        let asked = (params.rate > 0).then(|| Rate::from_bits_per_sec(params.rate));
        // iperf3's default block size for TCP was not chosen by the user.
        let chosen = params.block != crate::iperf3::DEFAULT_TCP_BLOCK;
        let datagrams = matches!(self.endpoint.transport, Transport::Udp(_));
        let whole_blocks = sends_whole_blocks(params);
        let options = StreamOptions {
            block: if chosen || datagrams || whole_blocks {
                params.block as usize
            } else {
                DEFAULT_SEND_BLOCK
            },
            whole_blocks,
            rate: asked,
            numbering: Numbering::Iperf3 { wide: params.udp_counters_64bit },
        };
        self.endpoint.run(&options, allowance, stop)
    }
}

/// Whether a sender writes whole blocks. iperf3 clients count them, and iperf3 servers pace between
/// them; with a number of blocks (`-k`) such a client ends the test after as many reads.
pub(super) fn sends_whole_blocks(params: &Params) -> bool {
    (params.rate > 0 || params.blocks > 0) && params.extension.is_none()
}

/// Whether the peer has closed the connection or it failed.
pub(super) fn closed(socket: &TcpStream) -> bool {
    use nix::sys::socket::{MsgFlags, recv};
    let peeked = recv(socket.as_raw_fd(), &mut [0], MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT);
    !matches!(peeked, Ok(1..) | Err(nix::Error::EAGAIN | nix::Error::EINTR))
}

/// Sets the requested socket options.
pub(super) fn prepare(shared: &crate::server::Shared, stream: &TcpStream, params: &Params) -> io::Result<()> {
    if params.window > 0 {
        socket::set_buffers(stream, params.window as usize)?;
    }
    if params.no_delay {
        stream.set_nodelay(true)?;
    }
    if params.extension.as_ref().is_some_and(|e| e.abort) {
        stream.set_read_timeout(Some(POLL_INTERVAL))?;
        stream.set_write_timeout(Some(POLL_INTERVAL))?;
    }
    if params.mss > 0 {
        setsockopt(stream, sockopt::TcpMaxSeg, &params.mss)?;
    }
    if params.tos > 0 {
        socket::set_traffic_class(stream, params.tos);
    }
    // Only senders need the controller.
    if let Some(name) = params.congestion.as_deref().filter(|_| params.server_sends()) {
        shared.pin(stream, name).map_err(io::Error::other)?;
    }
    Ok(())
}
