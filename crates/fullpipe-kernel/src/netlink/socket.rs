//! A netlink socket: requests, and table dumps with one buffer.

use super::message::{Message, Messages, u32_at};
use super::request::Request;
use super::{NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NLMSG_OVERRUN};
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd, OwnedFd};

/// The kernel fills at most 32 KiB of a dump at once; a single answer may be longer.
const BUFFER: usize = 1 << 17;

/// Maximum passes over a table that changes while it is read.
const MAX_PASSES: u32 = 10;

/// Netlink protocol of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// Links, addresses, routes, queueing disciplines: rtnetlink(7).
    Route,
    /// Sockets: sock_diag(7).
    SockDiag,
    /// Generic netlink, with families such as ethtool.
    Generic,
}

/// An item of a dump.
#[derive(Debug)]
pub enum DumpItem<T> {
    /// An entry of the table.
    Entry(T),
    /// The table changed while it was read, so entries may be duplicated or missing. It is read
    /// again from the start: discard all previous entries.
    Restart,
}

/// Outcome of a dump.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dump {
    /// Number of passes over the table.
    pub passes: u32,
    /// Whether the last pass is a consistent snapshot. If not, the table changed during every pass,
    /// and entries may be missing or duplicated.
    pub consistent: bool,
}

impl Dump {
    /// Fails if the table changed during every pass.
    ///
    /// # Errors
    /// [`io::ErrorKind::Interrupted`].
    pub fn require_consistent(self) -> io::Result<()> {
        if self.consistent {
            return Ok(());
        }
        let text = format!("the kernel's table changed during each of {} reads", self.passes);
        Err(io::Error::new(io::ErrorKind::Interrupted, text))
    }
}

/// A netlink socket in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Socket {
    socket: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Socket {
    /// Opens a socket.
    ///
    /// # Errors
    /// When the kernel was built without the protocol, or a sandbox forbids it.
    pub fn open(protocol: Protocol) -> io::Result<Self> {
        let protocol = match protocol {
            Protocol::Route => SockProtocol::NetlinkRoute,
            Protocol::SockDiag => SockProtocol::NetlinkSockDiag,
            Protocol::Generic => SockProtocol::NetlinkGeneric,
        };
        let socket = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
        Ok(Socket { socket, sequence: 0, buffer: vec![0; BUFFER] })
    }

    /// Sends a request and waits for its acknowledgement.
    ///
    /// # Errors
    /// The error returned by the kernel.
    pub fn change(&mut self, request: Request) -> io::Result<()> {
        self.request(request).map(drop)
    }

    /// Sends a request and returns the body of the reply, empty if there was none.
    ///
    /// # Errors
    /// The error returned by the kernel.
    pub fn request(&mut self, request: Request) -> io::Result<Vec<u8>> {
        self.send(request, NLM_F_ACK)?;
        let mut answer = None;
        loop {
            let done = self.receive(|message| {
                if message.kind == NLMSG_ERROR {
                    return parse_error(message.body).map_or(Ok(true), Err);
                }
                answer.get_or_insert_with(|| message.body.to_vec());
                Ok(false)
            })?;
            if done {
                return Ok(answer.unwrap_or_default());
            }
        }
    }

    /// Reads a table: calls `on_item` with the body of every message of type `answer`. A table that
    /// changed while it was read is read again, up to ten times.
    ///
    /// # Errors
    /// The error returned by the kernel.
    pub fn dump(
        &mut self,
        request: &Request,
        answer: u16,
        mut on_item: impl FnMut(DumpItem<&[u8]>),
    ) -> io::Result<Dump> {
        self.dump_until(request, answer, |item| {
            on_item(item);
            ControlFlow::Continue(())
        })
    }

    /// As [`dump`](Self::dump), until `on_item` breaks: the table then counts as inconsistent. The
    /// kernel's dump is not finished and refuses another one, so drop the socket.
    ///
    /// # Errors
    /// The error returned by the kernel.
    pub fn dump_until(
        &mut self,
        request: &Request,
        answer: u16,
        mut on_item: impl FnMut(DumpItem<&[u8]>) -> ControlFlow<()>,
    ) -> io::Result<Dump> {
        let mut passes = 0;
        let mut broken = false;
        loop {
            passes += 1;
            self.send(request.clone(), NLM_F_DUMP)?;
            let mut consistent = true;
            while !self.receive(|message| {
                consistent &= message.flags & NLM_F_DUMP_INTR == 0;
                match message.kind {
                    NLMSG_ERROR => return parse_error(message.body).map_or(Ok(true), Err),
                    // Since Linux 4.17, it carries the error that ended the dump.
                    NLMSG_DONE => return parse_error(message.body).map_or(Ok(true), Err),
                    NLMSG_OVERRUN => consistent = false,
                    kind if kind == answer => broken = on_item(DumpItem::Entry(message.body)).is_break(),
                    _ => {}
                }
                Ok(broken)
            })? {}
            consistent &= !broken;
            if consistent || broken || passes == MAX_PASSES || on_item(DumpItem::Restart).is_break() {
                return Ok(Dump { passes, consistent });
            }
        }
    }

    /// The bodies of a whole table, as a consistent snapshot.
    ///
    /// # Errors
    /// The error returned by the kernel, and [`io::ErrorKind::Interrupted`] if the table changed
    /// during every pass.
    pub fn table(&mut self, request: &Request, answer: u16) -> io::Result<Vec<Vec<u8>>> {
        let mut bodies = Vec::new();
        let dump = self.dump(request, answer, |item| match item {
            DumpItem::Entry(body) => bodies.push(body.to_vec()),
            DumpItem::Restart => bodies.clear(),
        })?;
        dump.require_consistent().map(|()| bodies)
    }

    fn send(&mut self, request: Request, flags: u16) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let bytes = request.finish(self.sequence, flags | NLM_F_REQUEST);
        send(self.socket.as_raw_fd(), &bytes, MsgFlags::empty())?;
        Ok(())
    }

    /// Passes the replies to the last request in one datagram to `each`, until it returns true.
    fn receive(&mut self, mut each: impl FnMut(Message<'_>) -> io::Result<bool>) -> io::Result<bool> {
        let length = loop {
            match recv(self.socket.as_raw_fd(), &mut self.buffer, MsgFlags::MSG_TRUNC) {
                Err(Errno::EINTR) => {}
                other => break other?,
            }
        };
        let bytes = self.buffer.get(..length).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("the kernel's reply has {length} bytes, the maximum is {BUFFER}"),
            )
        })?;
        for message in Messages(bytes).filter(|m| m.sequence == self.sequence) {
            if each(message)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The error code at the start of a message; `None` for an acknowledgement.
fn parse_error(body: &[u8]) -> Option<io::Error> {
    match u32_at(body, 0).map(|code| (code as i32).wrapping_neg()) {
        Some(code) if code > 0 => Some(io::Error::from_raw_os_error(code)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTM_NEWLINK: u16 = 16;
    const RTM_GETLINK: u16 = 18;

    /// A socket whose peer replies to each request with these messages: type, flags and body.
    fn replay(passes: Vec<Vec<(u16, u16, &'static [u8])>>) -> (Socket, std::thread::JoinHandle<()>) {
        use nix::sys::socket::socketpair;
        let (ours, kernels) =
            socketpair(AddressFamily::Unix, SockType::Datagram, None, SockFlag::SOCK_CLOEXEC).unwrap();
        let kernel = std::thread::spawn(move || {
            for pass in passes {
                let mut request = [0; 256];
                let length = recv(kernels.as_raw_fd(), &mut request, MsgFlags::empty()).unwrap();
                let request = Messages(&request[..length]).next().unwrap();
                assert_eq!(request.flags, NLM_F_REQUEST | NLM_F_DUMP);
                for (kind, flags, body) in pass {
                    // Interleaved with replies to an earlier request.
                    for sequence in [request.sequence.wrapping_sub(1), request.sequence] {
                        let message = Request::new(kind, flags, body).finish(sequence, 0);
                        send(kernels.as_raw_fd(), &message, MsgFlags::empty()).unwrap();
                    }
                }
            }
        });
        (Socket { socket: ours, sequence: 0, buffer: vec![0; 256] }, kernel)
    }

    const DONE: (u16, u16, &[u8]) = (NLMSG_DONE, 0, &[0; 4]);

    #[test]
    fn a_table_that_changed_while_it_was_read_is_read_again() {
        let interrupted = vec![(20, 0, &b"old "[..]), (20, NLM_F_DUMP_INTR, b"lost"), DONE];
        let quiet = vec![(20, 0, &b"new "[..]), (21, 0, b"else"), DONE];
        let (mut socket, kernel) = replay(vec![interrupted, quiet]);
        assert_eq!(socket.table(&Request::new(20, 0, &[]), 20).unwrap(), [b"new "]);
        kernel.join().unwrap();
    }

    #[test]
    fn a_table_that_always_changes_is_reported_inconsistent() {
        let pass = vec![(20, NLM_F_DUMP_INTR, &b"some"[..]), DONE];
        let (mut socket, kernel) = replay(vec![pass; MAX_PASSES as usize]);
        let (mut entries, mut restarts) = (0, 0);
        let dump = socket.dump(&Request::new(20, 0, &[]), 20, |item| match item {
            DumpItem::Entry(_) => entries += 1,
            DumpItem::Restart => restarts += 1,
        });
        assert_eq!(dump.unwrap(), Dump { passes: MAX_PASSES, consistent: false });
        assert_eq!((entries, restarts), (MAX_PASSES, MAX_PASSES - 1));
        kernel.join().unwrap();
    }

    #[test]
    fn an_error_in_the_last_message_of_a_dump_is_an_error() {
        let code: &'static [u8] = (-libc::EPERM).to_ne_bytes().to_vec().leak();
        let (mut socket, kernel) = replay(vec![vec![(20, 0, b"some"), (NLMSG_DONE, 0, code)]]);
        let error = socket.table(&Request::new(20, 0, &[]), 20).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EPERM));
        kernel.join().unwrap();
    }

    #[test]
    fn an_oversized_reply_is_an_error() {
        let (mut socket, kernel) = replay(vec![vec![(20, 0, &[0; 300]), DONE]]);
        let error = socket.table(&Request::new(20, 0, &[]), 20).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        drop(socket);
        let _ = kernel.join();
    }

    #[test]
    fn dumped_entries_match_single_requests() {
        let mut socket = Socket::open(Protocol::Route).unwrap();
        let links = socket.table(&Request::new(RTM_GETLINK, 0, &[0; 16]), RTM_NEWLINK).unwrap();
        assert!(!links.is_empty(), "every namespace has lo");
        for link in links {
            let mut body = [0; 16];
            body[4..8].copy_from_slice(&link[4..8]);
            // A link may have been removed meanwhile.
            if let Ok(one) = socket.request(Request::new(RTM_GETLINK, 0, &body)) {
                assert_eq!(one[4..8], link[4..8]);
            }
        }
    }

    #[test]
    fn a_missing_object_gives_the_kernels_error() {
        let mut socket = Socket::open(Protocol::Route).unwrap();
        let mut body = [0; 16];
        body[4..8].copy_from_slice(&i32::MAX.to_ne_bytes());
        let error = socket.request(Request::new(RTM_GETLINK, 0, &body)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
        assert!(socket.request(Request::new(RTM_GETLINK, 0, &[0; 16])).is_err(), "the socket stays usable");
    }

    #[test]
    fn an_inconsistent_dump_is_an_error() {
        assert!(Dump { passes: 1, consistent: true }.require_consistent().is_ok());
        let error = Dump { passes: 10, consistent: false }.require_consistent().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
        assert!(error.to_string().contains("10"), "{error}");
    }
}
