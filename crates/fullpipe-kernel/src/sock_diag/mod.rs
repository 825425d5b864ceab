//! TCP sockets of this network namespace, whoever holds them, as `ss` sees them (sock_diag(7)).
//!
//! [`SockDiag::dump`] shows one socket after the other as a view over the kernel's bytes: nothing is kept, and nothing is
//! decoded that is not asked for, so that a host with a hundred thousand connections can be looked at every second.
//! [`connections`] and [`sockets_of_process`] collect what few want to look at.
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

/// What asks for sockets: those of the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct SockDiag {
    socket: netlink::Socket,
}

impl SockDiag {
    /// For the calling thread's network namespace.
    ///
    /// # Errors
    /// When the kernel was built without it, or a sandbox forbids it.
    pub fn open() -> io::Result<Self> {
        Ok(SockDiag { socket: netlink::Socket::open(Protocol::SockDiag)? })
    }

    /// Shows every socket of `family` that `query` asks for. Sockets come and go meanwhile, so one may be missing that
    /// was opened or be there that was closed; [`DumpItem::Restart`] and the [`Dump`] tell when the kernel knows of worse.
    /// The kernel's lasting name of a socket is its [`cookie`](SocketView::cookie).
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
    ///     kernel.dump(family, &query, |seen| match seen {
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
    /// The kernel's own.
    pub fn dump(
        &mut self,
        family: Family,
        query: &Query,
        mut seen: impl FnMut(DumpItem<SocketView<'_>>),
    ) -> io::Result<Dump> {
        self.socket.dump(&query.request(family), SOCK_DIAG_BY_FAMILY, |message| match message {
            DumpItem::Entry(body) => {
                // A shorter message would be another protocol's.
                if let Some(view) = SocketView::new(body) {
                    seen(DumpItem::Entry(view));
                }
            }
            DumpItem::Restart => seen(DumpItem::Restart),
        })
    }

    /// The sockets of both families that `query` asks for and `wanted` wants, decoded.
    ///
    /// # Errors
    /// The kernel's own, and [`io::ErrorKind::Interrupted`] when its table never stood still.
    pub fn collect(
        &mut self,
        query: &Query,
        mut wanted: impl FnMut(&SocketView<'_>) -> bool,
    ) -> io::Result<Vec<TcpSocket>> {
        let mut sockets = Vec::new();
        for family in Family::BOTH {
            let others = sockets.len();
            let dump = self.dump(family, query, |seen| match seen {
                DumpItem::Entry(view) if wanted(&view) => sockets.extend(view.decode()),
                DumpItem::Entry(_) => {}
                DumpItem::Restart => sockets.truncate(others),
            })?;
            dump.consistent()?;
        }
        Ok(sockets)
    }
}

/// All TCP sockets of this network namespace that are or were connected, IPv4 and IPv6.
///
/// # Errors
/// When the kernel was built without it, or does not answer.
pub fn connections() -> io::Result<Vec<TcpSocket>> {
    SockDiag::open()?.collect(&Query::default(), |_| true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn every_connection_is_seen_once_whatever_does_not_fit_in_a_buffer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let pairs: Vec<_> =
            (0..200).map(|_| (TcpStream::connect(address).unwrap(), listener.accept().unwrap().0)).collect();
        let query = Query { local_port: Some(address.port()), ..Query::default() };
        let mut kernel = SockDiag::open().unwrap();
        let (mut cookies, mut listening) = (Vec::new(), 0);
        kernel
            .dump(Family::V4, &query, |seen| match seen {
                DumpItem::Entry(view) => {
                    listening += u32::from(view.state() == crate::tcp_info::State::Listen);
                    cookies.push(view.cookie());
                }
                DumpItem::Restart => cookies.clear(),
            })
            .unwrap();
        assert_eq!((cookies.len(), listening), (pairs.len(), 0), "listeners are not asked for");
        assert_eq!(cookies.iter().collect::<BTreeSet<_>>().len(), pairs.len());
    }

    #[test]
    fn only_what_is_asked_for_is_told() {
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
