//! An authenticated connection between two members that carries messages both ways.

use crate::hello::{
    HEAD_LEN, Head, Hello, Nonce, Reply, SessionKeys, TAG_LEN, VERSION, head, verify_welcome, welcome,
};
use crate::key::{PairKey, random};
use crate::message::Message;
use crate::record::TransferError;
use crate::wire::Malformed;
use fullpipe_kernel::socket;
use fullpipe_kernel::tcp_info::{self, PinError};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a waiting receiver checks whether to keep waiting.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// A peer that does not accept a small message within this time is gone.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// The same for a message of up to 64 KiB: a path may have 20 kbit/s.
const LARGE_SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum bytes of a frame, without its length, unless records are expected: the longest of the
/// other messages has 13 bytes. A peer that has not proven its key cannot make this site buffer
/// more.
const SMALL_FRAME: usize = 16 + TAG_LEN;

/// An authenticated connection.
#[derive(Debug)]
pub(crate) struct Channel {
    pub stream: Arc<TcpStream>,
    keys: SessionKeys,
    /// The part of the next frame that has been received.
    partial: Vec<u8>,
    /// Maximum bytes of a received frame, without its length.
    max_frame: usize,
}

/// Why no message was received.
#[derive(Debug)]
pub(crate) enum ReceiveError {
    /// The deadline passed.
    TimedOut,
    /// The peer closed the connection, or it failed.
    Closed(io::Error),
    /// The bytes are not a valid message of the peer.
    Malformed,
    /// The caller stopped waiting.
    Cancelled,
}

impl From<Malformed> for ReceiveError {
    fn from(_: Malformed) -> ReceiveError {
        ReceiveError::Malformed
    }
}

/// Bytes on the wire for opening a connection, both ways.
pub(crate) const OPENING_BYTES: u64 = 1500;
/// Bytes on the wire for a small message, with headers and its acknowledgement.
pub(crate) const MESSAGE_BYTES: u64 = 200;

/// Connects, with this congestion controller if one is named, and authenticates both ends.
pub(crate) fn dial(
    address: SocketAddr,
    controller: Option<&str>,
    key: &PairKey,
    hello: impl FnOnce(Nonce) -> Hello,
    timeout: Duration,
) -> Result<Channel, TransferError> {
    let deadline = Instant::now() + timeout;
    let nonce = random().map_err(|_| TransferError::Broken)?;
    let stream = socket::tcp(address).map_err(|_| TransferError::Unreachable)?;
    if let Some(name) = controller {
        tcp_info::pin(&stream, name).map_err(|e| match e {
            PinError::Socket(..) => TransferError::Broken,
            _ => TransferError::NoSuchController,
        })?;
    }
    socket::connect_timeout(&stream, address, timeout).map_err(|e| match e.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => TransferError::Refused,
        _ => TransferError::Unreachable,
    })?;
    let prepared = stream.set_nodelay(true).and_then(|()| stream.set_write_timeout(Some(SEND_TIMEOUT)));
    prepared.map_err(|_| TransferError::Broken)?;
    let hello = hello(nonce);
    (&stream).write_all(&hello.to_bytes()).map_err(|_| TransferError::Broken)?;
    let mut start = [0; HEAD_LEN];
    let classify = |e: ReceiveError| match e {
        // The peer accepts connections and does not answer: hung or overloaded.
        ReceiveError::TimedOut | ReceiveError::Cancelled => TransferError::Unreachable,
        ReceiveError::Closed(_) => TransferError::Broken,
        ReceiveError::Malformed => TransferError::NotAMember,
    };
    read_exactly(&stream, &mut start, deadline).map_err(classify)?;
    let length = match head(&start) {
        Ok(Head::Current(length)) => length,
        Ok(Head::Version(_)) => return Err(TransferError::Version),
        Err(Malformed) => return Err(TransferError::NotAMember),
    };
    let mut body = vec![0; length];
    read_exactly(&stream, &mut body, deadline).map_err(classify)?;
    let keys = match Reply::parse(&body) {
        Ok(Reply::Welcome { nonce, proof }) => verify_welcome(&hello, key, &nonce, &proof),
        Ok(Reply::Version(_)) => return Err(TransferError::Version),
        Ok(Reply::Full) => return Err(TransferError::Refused),
        Ok(Reply::NotAMember | Reply::WrongSite) | Err(Malformed) => None,
    };
    let keys = keys.ok_or(TransferError::NotAMember)?;
    let mut channel = Channel::new(stream, keys);
    channel.send(&Message::Ready).map_err(|_| TransferError::Broken)?;
    match channel.receive(deadline, &mut || true) {
        Ok(Message::Ready) => Ok(channel),
        // A peer that rejects the proof closes without a message.
        Ok(_) | Err(ReceiveError::Malformed | ReceiveError::Closed(_)) => Err(TransferError::NotAMember),
        Err(ReceiveError::TimedOut | ReceiveError::Cancelled) => Err(TransferError::Unreachable),
    }
}

/// What the responder knows about the peer.
pub(crate) enum PeerIdentity {
    /// A member of the mesh, with the key of the pair.
    Member(PairKey),
    /// Not accepted; the reply to send.
    Unknown(Reply),
}

/// Performs the responder's side of the handshake. `identify` looks the peer up by its hello.
pub(crate) fn accept(
    stream: TcpStream,
    identify: impl FnOnce(&Hello) -> PeerIdentity,
    timeout: Duration,
) -> Result<(Channel, Hello), HandshakeError> {
    let deadline = Instant::now() + timeout;
    stream
        .set_nodelay(true)
        .and_then(|()| stream.set_write_timeout(Some(SEND_TIMEOUT)))
        .map_err(|_| HandshakeError::Closed)?;
    let mut start = [0; HEAD_LEN];
    read_exactly(&stream, &mut start, deadline)?;
    let length = match head(&start)? {
        Head::Current(length) => length,
        Head::Version(version) => {
            let _ = (&stream).write_all(&Reply::Version(VERSION).to_bytes());
            return Err(HandshakeError::Version(version));
        }
    };
    let mut body = vec![0; length];
    read_exactly(&stream, &mut body, deadline)?;
    let hello = Hello::parse(&body)?;
    let key = match identify(&hello) {
        PeerIdentity::Member(key) => key,
        PeerIdentity::Unknown(reply) => {
            let _ = (&stream).write_all(&reply.to_bytes());
            return Err(HandshakeError::Declined(Box::new(hello), reply));
        }
    };
    let (reply, keys) = welcome(&hello, &key, random().map_err(|_| HandshakeError::Malformed)?);
    (&stream).write_all(&reply.to_bytes()).map_err(|_| HandshakeError::Closed)?;
    let mut channel = Channel::new(stream, keys);
    match channel.receive(deadline, &mut || true) {
        Ok(Message::Ready) => {}
        Ok(_) | Err(ReceiveError::Malformed | ReceiveError::Cancelled | ReceiveError::Closed(_)) => {
            return Err(HandshakeError::Unproven(Box::new(hello)));
        }
        Err(ReceiveError::TimedOut) => return Err(HandshakeError::TimedOut),
    }
    channel.send(&Message::Ready).map_err(|_| HandshakeError::Closed)?;
    Ok((channel, hello))
}

/// Why a handshake failed.
#[derive(Debug)]
pub(crate) enum HandshakeError {
    TimedOut,
    Malformed,
    /// The peer closed the connection.
    Closed,
    /// The peer speaks this protocol version.
    Version(u16),
    Declined(Box<Hello>, Reply),
    /// The peer does not have the key, or rejects this site's proof.
    Unproven(Box<Hello>),
}

impl From<ReceiveError> for HandshakeError {
    fn from(lost: ReceiveError) -> HandshakeError {
        match lost {
            ReceiveError::TimedOut | ReceiveError::Cancelled => HandshakeError::TimedOut,
            ReceiveError::Closed(_) => HandshakeError::Closed,
            ReceiveError::Malformed => HandshakeError::Malformed,
        }
    }
}

impl From<Malformed> for HandshakeError {
    fn from(_: Malformed) -> HandshakeError {
        HandshakeError::Malformed
    }
}

/// Fills `buffer` before the deadline. A socket timeout alone would restart with each byte.
fn read_exactly(mut stream: &TcpStream, buffer: &mut [u8], deadline: Instant) -> Result<(), ReceiveError> {
    let mut read = 0;
    while read < buffer.len() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ReceiveError::TimedOut);
        }
        stream.set_read_timeout(Some(left)).map_err(ReceiveError::Closed)?;
        match stream.read(&mut buffer[read..]) {
            Ok(0) => return Err(ReceiveError::Closed(ErrorKind::UnexpectedEof.into())),
            Ok(n) => read += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Err(ReceiveError::TimedOut),
            Err(e) => return Err(ReceiveError::Closed(e)),
        }
    }
    Ok(())
}

impl Channel {
    fn new(stream: TcpStream, keys: SessionKeys) -> Channel {
        Channel { stream: Arc::new(stream), keys, partial: Vec::new(), max_frame: SMALL_FRAME }
    }

    /// Accepts messages with records, up to 64 KiB.
    pub fn expect_records(&mut self) {
        self.max_frame = usize::from(u16::MAX);
    }

    /// Sends a message. The timeout is for all of it, not for each piece that the peer accepts.
    pub fn send(&mut self, message: &Message) -> io::Result<()> {
        let frame = self.keys.seal(&message.to_bytes());
        let is_small = frame.len() <= 2 + SMALL_FRAME;
        let deadline = Instant::now() + if is_small { SEND_TIMEOUT } else { LARGE_SEND_TIMEOUT };
        let mut left = &frame[..];
        while !left.is_empty() {
            let wait = deadline.saturating_duration_since(Instant::now());
            if wait.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            self.stream.set_write_timeout(Some(wait))?;
            match (&*self.stream).write(left) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => left = &left[n..],
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Receives the next message. While there is none, `keep_waiting` is polled; `false` cancels
    /// the wait.
    pub fn receive(
        &mut self,
        deadline: Instant,
        keep_waiting: &mut dyn FnMut() -> bool,
    ) -> Result<Message, ReceiveError> {
        loop {
            let wanted = match self.partial.first_chunk() {
                None => 2,
                Some(&length) => 2 + usize::from(u16::from_be_bytes(length)),
            };
            if wanted > 2 && self.partial.len() == wanted {
                let message = Message::parse(self.keys.open(&self.partial[2..])?)?;
                self.partial.clear();
                return Ok(message);
            }
            if self.partial.len() >= 2 && !(TAG_LEN..=self.max_frame).contains(&(wanted - 2)) {
                return Err(ReceiveError::Malformed);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ReceiveError::TimedOut);
            }
            self.stream.set_read_timeout(Some(left.min(POLL_INTERVAL))).map_err(ReceiveError::Closed)?;
            // Read only this frame: the bytes after a message may be a transfer's payload.
            let mut piece = [0; 4096];
            let most = (wanted - self.partial.len()).min(piece.len());
            match (&*self.stream).read(&mut piece[..most]) {
                Ok(0) => return Err(ReceiveError::Closed(ErrorKind::UnexpectedEof.into())),
                Ok(n) => self.partial.extend_from_slice(&piece[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    if !keep_waiting() {
                        return Err(ReceiveError::Cancelled);
                    }
                }
                Err(e) => return Err(ReceiveError::Closed(e)),
            }
        }
    }

    /// Resets the connection, discarding what is in the send queue.
    pub fn abort(self) {
        let _ = socket::reset_on_close(&self.stream);
    }
}
