//! All TCP sockets of this network namespace, as listed by `ss` (sock_diag(7)).
//!
//! [`SockDiag::dump`] passes sockets one by one as views over the kernel's bytes: nothing is
//! stored, and only requested fields are decoded, so that a host with 100 000 connections can be
//! sampled every second. [`connections`] and [`sockets_of_process`] collect decoded sockets.
//!
//! Sources: `include/uapi/linux/inet_diag.h`, `inet_diag_msg_attrs_fill` in `net/ipv4/inet_diag.c`.

mod process;
mod query;
mod view;

pub use process::{socket_inodes, sockets_of_process};
pub use query::{Extensions, Family, Query, States};
pub use view::{SocketMemory, SocketView, TcpSocket};

use crate::netlink::{self, Dump, DumpItem, Protocol};
use std::io;

const SOCK_DIAG_BY_FAMILY: u16 = 20;

/// A sock_diag socket in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct SockDiag {
    socket: netlink::Socket,
}

impl SockDiag {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// When the kernel was built without it, or a sandbox forbids it.
    pub fn open() -> io::Result<Self> {
        Ok(SockDiag { socket: netlink::Socket::open(Protocol::SockDiag)? })
    }

    /// Passes every socket of `family` that matches `query` to `on_item`. Sockets opened or closed
    /// meanwhile may be missing or included; [`DumpItem::Restart`] and the [`Dump`] report
    /// inconsistencies detected by the kernel. The unique ID of a socket is its
    /// [`cookie`](SocketView::cookie).
    ///
    /// ```
    /// use fullpipe_kernel::netlink::DumpItem;
    /// use fullpipe_kernel::sock_diag::{Extensions, Family, Query, SockDiag};
    ///
    /// let mut kernel = SockDiag::open()?;
    /// let query = Query { extensions: Extensions::INFO | Extensions::CONG, ..Query::default() };
    /// let mut limited = 0;
    /// for family in Family::BOTH {
    ///     let before = limited;
    ///     kernel.dump(family, &query, |item| match item {
    ///         DumpItem::Entry(socket) => {
    ///             let info = socket.info();
    ///             limited += u32::from(info.is_some_and(|i| i.rwnd_limited.is_some_and(|t| !t.is_zero())));
    ///         }
    ///         DumpItem::Restart => limited = before,
    ///     })?;
    /// }
    /// println!("{limited} connections were held back by the receiver's window");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// The error returned by the kernel.
    pub fn dump(
        &mut self,
        family: Family,
        query: &Query,
        mut on_item: impl FnMut(DumpItem<SocketView<'_>>),
    ) -> io::Result<Dump> {
        self.socket.dump(&query.request(family), SOCK_DIAG_BY_FAMILY, |message| match message {
            DumpItem::Entry(body) => {
                // A shorter message belongs to another protocol.
                if let Some(view) = SocketView::new(body) {
                    on_item(DumpItem::Entry(view));
                }
            }
            DumpItem::Restart => on_item(DumpItem::Restart),
        })
    }

    /// Decoded sockets of both families that match `query` and `is_wanted`.
    ///
    /// # Errors
    /// The error returned by the kernel, and [`io::ErrorKind::Interrupted`] if its table never was
    /// consistent.
    pub fn collect(
        &mut self,
        query: &Query,
        mut is_wanted: impl FnMut(&SocketView<'_>) -> bool,
    ) -> io::Result<Vec<TcpSocket>> {
        let mut sockets = Vec::new();
        for family in Family::BOTH {
            let start = sockets.len();
            let dump = self.dump(family, query, |item| match item {
                DumpItem::Entry(view) if is_wanted(&view) => sockets.extend(view.decode()),
                DumpItem::Entry(_) => {}
                DumpItem::Restart => sockets.truncate(start),
            })?;
            dump.require_consistent()?;
        }
        Ok(sockets)
    }
}

/// All TCP sockets of this network namespace that are or were connected, IPv4 and IPv6.
///
/// # Errors
/// When the kernel lacks sock_diag or returns an error.
pub fn connections() -> io::Result<Vec<TcpSocket>> {
    SockDiag::open()?.collect(&Query::default(), |_| true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn every_connection_is_dumped_once_across_buffers() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let pairs: Vec<_> =
            (0..200).map(|_| (TcpStream::connect(address).unwrap(), listener.accept().unwrap().0)).collect();
        let query = Query { local_port: Some(address.port()), ..Query::default() };
        let mut kernel = SockDiag::open().unwrap();
        let (mut cookies, mut listening) = (Vec::new(), 0);
        kernel
            .dump(Family::V4, &query, |item| match item {
                DumpItem::Entry(view) => {
                    listening += u32::from(view.state() == crate::tcp_info::State::Listen);
                    cookies.push(view.cookie());
                }
                DumpItem::Restart => cookies.clear(),
            })
            .unwrap();
        assert_eq!((cookies.len(), listening), (pairs.len(), 0), "listeners are excluded");
        assert_eq!(cookies.iter().collect::<BTreeSet<_>>().len(), pairs.len());
    }

    #[test]
    fn only_requested_extensions_are_returned() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let local = client.local_addr().unwrap();
        let mut kernel = SockDiag::open().unwrap();
        let mut find = |extensions| {
            let query = Query { extensions, local_port: Some(local.port()), ..Query::default() };
            kernel.collect(&query, |view| view.local() == Some(local)).unwrap().remove(0)
        };
        let nothing = find(Extensions::NONE);
        assert_eq!((nothing.info, nothing.controller, nothing.memory), (None, None, None));
        let all = find(Extensions::INFO | Extensions::CONG | Extensions::SKMEMINFO | Extensions::VEGASINFO);
        assert!(all.info.is_some() && all.controller.is_some());
        assert!(all.memory.unwrap().receive_buffer > 0);
    }
}
