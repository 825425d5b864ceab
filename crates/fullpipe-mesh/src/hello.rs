//! The handshake between two sites of a mesh, sans-IO.
//!
//! The initiator names itself, the peer and its purpose ([`Hello`]); the responder replies with a
//! proof that it has the key of the pair ([`Reply`]); the initiator's proof is its first
//! authenticated message. Both proofs and the session keys are derived from the whole transcript,
//! with a nonce of each side: messages cannot be replayed, modified or reflected.
//!
//! The head of both messages (`fpmesh`, version, length) stays the same in all versions, so that a
//! peer of another version gets an answer instead of a closed connection.

use crate::key::{PairKey, digest, mac};
use crate::wire::{Malformed, Reader, Writer};
use subtle::ConstantTimeEq;

/// The protocol version.
pub const VERSION: u16 = 1;
/// The first bytes of both messages.
const MAGIC: &[u8; 6] = b"fpmesh";
/// Bytes of the head: magic, version, and length of the body.
pub const HEAD_LEN: usize = 10;
/// Maximum body length: three names, a controller, a nonce, and room for later versions.
pub const MAX_BODY: usize = 1024;

/// A number used once.
pub type Nonce = [u8; 32];

/// The purpose of a connection.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Purpose {
    /// Transfers from the initiator to the responder with the named controller.
    Transfers(String),
    /// The initiator requests the responder's records.
    Collect,
    /// The initiator offers its own records.
    Push,
}

/// The initiator's message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// Name of the mesh.
    pub mesh: String,
    /// The initiator's site.
    pub from: String,
    /// The responder's site.
    pub to: String,
    /// Purpose of the connection.
    pub purpose: Purpose,
    /// The initiator's nonce.
    pub nonce: Nonce,
}

/// The responder's message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Accepted, with nonce and proof.
    Welcome {
        /// The responder's nonce.
        nonce: Nonce,
        /// Proof of the pair's key.
        proof: [u8; 32],
    },
    /// The responder speaks this other version.
    Version(u16),
    /// Unknown mesh or site.
    NotAMember,
    /// The responder is another site.
    WrongSite,
    /// Too many connections.
    Full,
}

/// A parsed head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Head {
    /// The current version, with the length of the body.
    Current(usize),
    /// Another version.
    Version(u16),
}

/// Parses the head of a message.
///
/// # Errors
/// If the magic is wrong or the body is too long.
pub fn head(bytes: &[u8; HEAD_LEN]) -> Result<Head, Malformed> {
    let mut reader = Reader(bytes);
    if reader.read_bytes(MAGIC.len())? != MAGIC {
        return Err(Malformed);
    }
    let (version, length) = (reader.u16()?, usize::from(reader.u16()?));
    match version {
        VERSION if length <= MAX_BODY => Ok(Head::Current(length)),
        VERSION => Err(Malformed),
        other => Ok(Head::Version(other)),
    }
}

fn with_head(body: &Writer) -> Vec<u8> {
    let mut whole = Writer::default();
    whole.bytes(MAGIC).u16(VERSION).u16(body.0.len() as u16).bytes(&body.0);
    whole.0
}

impl Hello {
    /// Encodes the message with its head.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut body = Writer::default();
        body.text(&self.mesh).text(&self.from).text(&self.to);
        match &self.purpose {
            Purpose::Transfers(controller) => body.u8(0).text(controller),
            Purpose::Collect => body.u8(1),
            Purpose::Push => body.u8(2),
        };
        body.bytes(&self.nonce);
        with_head(&body)
    }

    /// Parses the body.
    ///
    /// # Errors
    /// If the body is not a hello.
    pub fn parse(body: &[u8]) -> Result<Hello, Malformed> {
        let mut reader = Reader(body);
        let (mesh, from, to) = (reader.text()?, reader.text()?, reader.text()?);
        let purpose = match reader.u8()? {
            0 => Purpose::Transfers(reader.text()?.to_owned()),
            1 => Purpose::Collect,
            2 => Purpose::Push,
            _ => return Err(Malformed),
        };
        let nonce = reader.array()?;
        reader.end()?;
        Ok(Hello { mesh: mesh.to_owned(), from: from.to_owned(), to: to.to_owned(), purpose, nonce })
    }
}

impl Reply {
    /// Encodes the message with its head.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut body = Writer::default();
        match self {
            Reply::Welcome { nonce, proof } => body.u8(0).bytes(nonce).bytes(proof),
            Reply::Version(version) => body.u8(1).u16(*version),
            Reply::NotAMember => body.u8(2),
            Reply::WrongSite => body.u8(3),
            Reply::Full => body.u8(4),
        };
        with_head(&body)
    }

    /// Parses the body.
    ///
    /// # Errors
    /// If the body is not a reply.
    pub fn parse(body: &[u8]) -> Result<Reply, Malformed> {
        let mut reader = Reader(body);
        let reply = match reader.u8()? {
            0 => Reply::Welcome { nonce: reader.array()?, proof: reader.array()? },
            1 => Reply::Version(reader.u16()?),
            2 => Reply::NotAMember,
            3 => Reply::WrongSite,
            4 => Reply::Full,
            _ => return Err(Malformed),
        };
        reader.end()?;
        Ok(reply)
    }
}

/// The transcript hash from which proofs and keys are derived.
fn transcript_hash(hello: &Hello, nonce: &Nonce) -> [u8; 32] {
    digest(&[&hello.to_bytes()[..], nonce].concat())
}

/// The responder's reply and session, which is valid if the initiator proves itself.
pub fn welcome(hello: &Hello, key: &PairKey, nonce: Nonce) -> (Reply, SessionKeys) {
    let transcript = transcript_hash(hello, &nonce);
    let proof = key.mac(&[b"called", &transcript]);
    (Reply::Welcome { nonce, proof }, SessionKeys::new(key, &transcript, Role::Called))
}

/// The initiator's session, if the responder's proof is valid.
pub fn verify_welcome(hello: &Hello, key: &PairKey, nonce: &Nonce, proof: &[u8; 32]) -> Option<SessionKeys> {
    let transcript = transcript_hash(hello, nonce);
    let right = key.mac(&[b"called", &transcript]);
    bool::from(right.ct_eq(proof)).then(|| SessionKeys::new(key, &transcript, Role::Caller))
}

/// The side of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Caller,
    Called,
}

/// Bytes of an authentication tag.
pub const TAG_LEN: usize = 16;

/// Authenticates the messages of a session. Each message's sequence number is under its tag, so
/// messages cannot be dropped, repeated or reordered.
pub struct SessionKeys {
    ours: [u8; 32],
    theirs: [u8; 32],
    sent: u64,
    received: u64,
}

impl std::fmt::Debug for SessionKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionKeys").field("sent", &self.sent).field("received", &self.received).finish()
    }
}

impl SessionKeys {
    fn new(key: &PairKey, transcript: &[u8; 32], role: Role) -> SessionKeys {
        let (caller, called) = (key.derive("caller", transcript), key.derive("called's", transcript));
        let (ours, theirs) = match role {
            Role::Caller => (caller, called),
            Role::Called => (called, caller),
        };
        SessionKeys { ours, theirs, sent: 0, received: 0 }
    }

    /// Encodes a message: length, payload, tag.
    pub fn seal(&mut self, message: &[u8]) -> Vec<u8> {
        let seal = mac(&self.ours, &[&self.sent.to_be_bytes(), message]);
        self.sent += 1;
        let mut frame = Writer::default();
        frame.u16((message.len() + TAG_LEN) as u16).bytes(message).bytes(&seal[..TAG_LEN]);
        frame.0
    }

    /// Verifies a frame (without its length) and returns the message.
    ///
    /// # Errors
    /// If it is not the peer's next message.
    pub fn open<'a>(&mut self, frame: &'a [u8]) -> Result<&'a [u8], Malformed> {
        let at = frame.len().checked_sub(TAG_LEN).ok_or(Malformed)?;
        let (message, seal) = frame.split_at(at);
        let right = mac(&self.theirs, &[&self.received.to_be_bytes(), message]);
        if !bool::from(right[..TAG_LEN].ct_eq(seal)) {
            return Err(Malformed);
        }
        self.received += 1;
        Ok(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Keys;
    use proptest::prelude::*;

    fn hello() -> Hello {
        Hello {
            mesh: "m".into(),
            from: "lab".into(),
            to: "sea".into(),
            purpose: Purpose::Transfers("bbr".into()),
            nonce: [7; 32],
        }
    }

    fn key(keys: &Keys) -> PairKey {
        keys.pair("m", "sea", "lab").unwrap()
    }

    #[test]
    fn only_peers_that_share_a_key_can_talk() {
        let (keys, others) = (Keys::generate().unwrap(), Keys::generate().unwrap());
        let bytes = hello().to_bytes();
        let Head::Current(n) = head(bytes[..HEAD_LEN].try_into().unwrap()).unwrap() else { panic!() };
        let parsed = Hello::parse(&bytes[HEAD_LEN..HEAD_LEN + n]).unwrap();
        assert_eq!(parsed, hello());
        let (reply, mut called) = welcome(&parsed, &key(&keys), [9; 32]);
        let Reply::Welcome { nonce, proof } = Reply::parse(&reply.to_bytes()[HEAD_LEN..]).unwrap() else {
            panic!()
        };
        assert!(verify_welcome(&hello(), &key(&others), &nonce, &proof).is_none(), "another mesh's key");
        let lied = Hello { purpose: Purpose::Collect, ..hello() };
        assert!(verify_welcome(&lied, &key(&keys), &nonce, &proof).is_none(), "modified in transit");
        let mut caller = verify_welcome(&hello(), &key(&keys), &nonce, &proof).unwrap();

        let (one, two) = (caller.seal(b"one"), caller.seal(b"two"));
        assert_eq!(called.open(&two[2..]), Err(Malformed), "out of order");
        assert_eq!(called.open(&one[2..]).unwrap(), b"one");
        assert_eq!(called.open(&one[2..]), Err(Malformed), "replayed");
        assert_eq!(caller.open(&two[2..]), Err(Malformed), "reflected");
        let mut changed = two.clone();
        changed[3] ^= 1;
        assert_eq!(called.open(&changed[2..]), Err(Malformed));
        assert_eq!(called.open(&two[2..]).unwrap(), b"two");
        assert_eq!(called.open(b"short"), Err(Malformed));
    }

    #[test]
    fn another_version_is_recognised_by_its_head() {
        let mut bytes = hello().to_bytes();
        bytes[7] = 9;
        assert_eq!(head(bytes[..HEAD_LEN].try_into().unwrap()), Ok(Head::Version(9)));
        assert_eq!(head(b"SSH-2.0-Op"), Err(Malformed));
        assert_eq!(head(b"fpmesh\x00\x01\xff\xff"), Err(Malformed), "too long");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_parsed_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(hello) = Hello::parse(&bytes) {
                prop_assert_eq!(&hello.to_bytes()[HEAD_LEN..], &bytes[..]);
            }
            if let Ok(reply) = Reply::parse(&bytes) {
                prop_assert_eq!(&reply.to_bytes()[HEAD_LEN..], &bytes[..]);
            }
        }
    }
}
