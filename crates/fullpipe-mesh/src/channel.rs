//! A connection between two members: dialled or accepted, proven, and then messages both ways.

use crate::hello::{Answer, HEAD, Head, Hello, Nonce, SEAL, Seals, VERSION, head, welcome, welcomed};
use crate::key::{PairKey, random};
use crate::message::Message;
use crate::record::Trouble;
use crate::wire::Malformed;
use fullpipe_kernel::socket;
use fullpipe_kernel::tcp_info::{self, PinError};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two looks at what else there is to look at while a message is waited for.
const LOOK: Duration = Duration::from_millis(250);
/// A peer that does not take a small message for so long is gone.
const SEND_WITHIN: Duration = Duration::from_secs(10);

/// A proven connection.
#[derive(Debug)]
pub(crate) struct Channel {
    pub stream: Arc<TcpStream>,
    seals: Seals,
    /// What has come of the next frame.
    partial: Vec<u8>,
}

/// Why no message came.
#[derive(Debug)]
pub(crate) enum Lost {
    /// Not in time.
    Late,
    /// The other end closed, or the connection broke.
    Closed(io::Error),
    /// Something that no member says.
    Nonsense,
    /// Whoever waited did not want to any longer.
    Left,
}

impl From<Malformed> for Lost {
    fn from(_: Malformed) -> Lost {
        Lost::Nonsense
    }
}

/// Bytes on the wire of what opening a connection takes, both ways.
pub(crate) const OPENING_BYTES: u64 = 1500;
/// Of a small message, with headers and its acknowledgement.
pub(crate) const MESSAGE_BYTES: u64 = 200;

/// Connects, by this controller if one is named, and proves both ends.
pub(crate) fn dial(
    address: SocketAddr,
    controller: Option<&str>,
    key: &PairKey,
    hello: impl FnOnce(Nonce) -> Hello,
    within: Duration,
) -> Result<Channel, Trouble> {
    let until = Instant::now() + within;
    let nonce = random().map_err(|_| Trouble::Broken)?;
    let stream = socket::tcp(address).map_err(|_| Trouble::Unreachable)?;
    if let Some(name) = controller {
        tcp_info::pin(&stream, name).map_err(|e| match e {
            PinError::Socket(..) => Trouble::Broken,
            _ => Trouble::NoSuchController,
        })?;
    }
    socket::connect_timeout(&stream, address, within).map_err(|e| match e.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => Trouble::Refused,
        _ => Trouble::Unreachable,
    })?;
    let prepared = stream.set_nodelay(true).and_then(|()| stream.set_write_timeout(Some(SEND_WITHIN)));
    prepared.map_err(|_| Trouble::Broken)?;
    let hello = hello(nonce);
    (&stream).write_all(&hello.to_bytes()).map_err(|_| Trouble::Broken)?;
    let mut start = [0; HEAD];
    let spoken = |e: Lost| match e {
        // It listens, and does not speak: half-dead, or it takes no more.
        Lost::Late | Lost::Left => Trouble::Unreachable,
        Lost::Closed(_) => Trouble::Broken,
        Lost::Nonsense => Trouble::NotAMember,
    };
    read_exactly(&stream, &mut start, until).map_err(spoken)?;
    let length = match head(&start) {
        Ok(Head::Ours(length)) => length,
        Ok(Head::Version(_)) => return Err(Trouble::Version),
        Err(Malformed) => return Err(Trouble::NotAMember),
    };
    let mut body = vec![0; length];
    read_exactly(&stream, &mut body, until).map_err(spoken)?;
    let seals = match Answer::parse(&body) {
        Ok(Answer::Welcome { nonce, proof }) => welcomed(&hello, key, &nonce, &proof),
        Ok(Answer::Version(_)) => return Err(Trouble::Version),
        Ok(Answer::Full) => return Err(Trouble::Refused),
        Ok(Answer::NotAMember | Answer::AnotherSite) | Err(Malformed) => None,
    };
    let seals = seals.ok_or(Trouble::NotAMember)?;
    let mut channel = Channel { stream: Arc::new(stream), seals, partial: Vec::new() };
    channel.send(&Message::Ready).map_err(|_| Trouble::Broken)?;
    match channel.receive(until, &mut || true) {
        Ok(Message::Ready) => Ok(channel),
        // Whoever does not believe the caller closes without a word.
        Ok(_) | Err(Lost::Nonsense | Lost::Closed(_)) => Err(Trouble::NotAMember),
        Err(Lost::Late | Lost::Left) => Err(Trouble::Unreachable),
    }
}

/// What the called knows of a caller.
pub(crate) enum Caller {
    /// A member of the mesh: its hello, and the pair's key.
    Member(PairKey),
    /// None, or one that is not wanted: what it is told.
    Stranger(Answer),
}

/// Hears a caller out. `who` says who that is, by its hello.
pub(crate) fn accept(
    stream: TcpStream,
    who: impl FnOnce(&Hello) -> Caller,
    within: Duration,
) -> Result<(Channel, Hello), Rejected> {
    let until = Instant::now() + within;
    stream
        .set_nodelay(true)
        .and_then(|()| stream.set_write_timeout(Some(SEND_WITHIN)))
        .map_err(|_| Rejected::Left)?;
    let mut start = [0; HEAD];
    read_exactly(&stream, &mut start, until)?;
    let length = match head(&start)? {
        Head::Ours(length) => length,
        Head::Version(version) => {
            let _ = (&stream).write_all(&Answer::Version(VERSION).to_bytes());
            return Err(Rejected::Version(version));
        }
    };
    let mut body = vec![0; length];
    read_exactly(&stream, &mut body, until)?;
    let hello = Hello::parse(&body)?;
    let key = match who(&hello) {
        Caller::Member(key) => key,
        Caller::Stranger(answer) => {
            let _ = (&stream).write_all(&answer.to_bytes());
            return Err(Rejected::Told(Box::new(hello), answer));
        }
    };
    let (answer, seals) = welcome(&hello, &key, random().map_err(|_| Rejected::Nonsense)?);
    (&stream).write_all(&answer.to_bytes()).map_err(|_| Rejected::Left)?;
    let mut channel = Channel { stream: Arc::new(stream), seals, partial: Vec::new() };
    match channel.receive(until, &mut || true) {
        Ok(Message::Ready) => {}
        Ok(_) | Err(Lost::Nonsense | Lost::Left | Lost::Closed(_)) => {
            return Err(Rejected::Unproven(Box::new(hello)));
        }
        Err(Lost::Late) => return Err(Rejected::Late),
    }
    channel.send(&Message::Ready).map_err(|_| Rejected::Left)?;
    Ok((channel, hello))
}

/// Why a caller was not let in.
#[derive(Debug)]
pub(crate) enum Rejected {
    Late,
    Nonsense,
    /// It left.
    Left,
    /// It speaks this version.
    Version(u16),
    Told(Box<Hello>, Answer),
    /// It does not have the key, or takes this site not to have it.
    Unproven(Box<Hello>),
}

impl From<Lost> for Rejected {
    fn from(lost: Lost) -> Rejected {
        match lost {
            Lost::Late | Lost::Left => Rejected::Late,
            Lost::Closed(_) => Rejected::Left,
            Lost::Nonsense => Rejected::Nonsense,
        }
    }
}

impl From<Malformed> for Rejected {
    fn from(_: Malformed) -> Rejected {
        Rejected::Nonsense
    }
}

/// Waits for bytes at most until then: a time-out of the socket alone would begin again with each byte.
fn read_exactly(mut stream: &TcpStream, buffer: &mut [u8], until: Instant) -> Result<(), Lost> {
    let mut read = 0;
    while read < buffer.len() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Lost::Late);
        }
        stream.set_read_timeout(Some(left)).map_err(Lost::Closed)?;
        match stream.read(&mut buffer[read..]) {
            Ok(0) => return Err(Lost::Closed(ErrorKind::UnexpectedEof.into())),
            Ok(n) => read += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Err(Lost::Late),
            Err(e) => return Err(Lost::Closed(e)),
        }
    }
    Ok(())
}

impl Channel {
    pub fn send(&mut self, message: &Message) -> io::Result<()> {
        let frame = self.seals.seal(&message.to_bytes());
        self.stream.set_write_timeout(Some(SEND_WITHIN))?;
        (&*self.stream).write_all(&frame)
    }

    /// The next message. `look` is called now and then while there is none, and says whether to go on.
    pub fn receive(&mut self, until: Instant, look: &mut dyn FnMut() -> bool) -> Result<Message, Lost> {
        loop {
            let wanted = match self.partial.first_chunk() {
                None => 2,
                Some(&length) => 2 + usize::from(u16::from_be_bytes(length)),
            };
            if wanted > 2 && self.partial.len() == wanted {
                let message = Message::parse(self.seals.open(&self.partial[2..])?)?;
                self.partial.clear();
                return Ok(message);
            }
            if (2..2 + SEAL).contains(&wanted) && self.partial.len() >= 2 {
                return Err(Lost::Nonsense);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Lost::Late);
            }
            self.stream.set_read_timeout(Some(left.min(LOOK))).map_err(Lost::Closed)?;
            // Only of this frame: what follows a message may be a transfer's bytes.
            let mut piece = [0; 4096];
            let most = (wanted - self.partial.len()).min(piece.len());
            match (&*self.stream).read(&mut piece[..most]) {
                Ok(0) => return Err(Lost::Closed(ErrorKind::UnexpectedEof.into())),
                Ok(n) => self.partial.extend_from_slice(&piece[..n]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    if !look() {
                        return Err(Lost::Left);
                    }
                }
                Err(e) => return Err(Lost::Closed(e)),
            }
        }
    }

    /// Closes it so that nothing more of what was given to the kernel goes out.
    pub fn abort(self) {
        let _ = socket::reset_on_close(&self.stream);
    }
}
