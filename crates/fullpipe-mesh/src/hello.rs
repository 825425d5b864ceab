//! How two sites of a mesh come to know that they are, sans-IO.
//!
//! The caller says who it is, whom it wants and what for ([`Hello`]); the called answers with a proof that it has the key of the
//! pair ([`Answer`]); the caller's proof is its first sealed message. Both proofs and the keys of the session are made of all that
//! was said before, with a nonce of each side: nothing can be played again, changed, or given back to who said it.
//!
//! The head of both messages (`fpmesh`, the version, a length) stays the same in all versions, so that a peer of another version is
//! told so and not cut off.

use crate::key::{PairKey, digest, mac};
use crate::wire::{Malformed, Reader, Writer};
use subtle::ConstantTimeEq;

/// The version of the protocol.
pub const VERSION: u16 = 1;
/// What both messages begin with.
const MAGIC: &[u8; 6] = b"fpmesh";
/// Bytes of the head of both: the magic, the version, the length of what follows.
pub const HEAD: usize = 10;
/// The longest that follows a head: three names, a controller, a nonce, and room for what later versions add.
pub const LONGEST: usize = 1024;

/// A number that is used once.
pub type Nonce = [u8; 32];

/// What a connection is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Transfers from the caller to the called, by the caller's controller of this name.
    Transfers(String),
    /// The caller asks for the called's records.
    Collect,
    /// The called asks for the caller's records.
    Push,
}

/// What the caller says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The name of the mesh.
    pub mesh: String,
    /// Who calls.
    pub from: String,
    /// Who is called.
    pub to: String,
    /// What for.
    pub purpose: Purpose,
    /// The caller's.
    pub nonce: Nonce,
}

/// What the called says to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Come in; with its nonce and proof.
    Welcome {
        /// The called's.
        nonce: Nonce,
        /// That it has the pair's key.
        proof: [u8; 32],
    },
    /// It speaks another version, this one.
    Version(u16),
    /// The mesh has another name here, or no such site.
    NotAMember,
    /// The called is another site.
    AnotherSite,
    /// It has as many connections as it takes.
    Full,
}

/// Whether a head is that of a message of this version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Head {
    /// It is; so many bytes follow.
    Ours(usize),
    /// Of another version, this one.
    Version(u16),
}

/// Reads the head of a message.
///
/// # Errors
/// When it is none, or what follows is longer than any.
pub fn head(bytes: &[u8; HEAD]) -> Result<Head, Malformed> {
    let mut reader = Reader(bytes);
    if reader.take(MAGIC.len())? != MAGIC {
        return Err(Malformed);
    }
    let (version, length) = (reader.u16()?, usize::from(reader.u16()?));
    match version {
        VERSION if length <= LONGEST => Ok(Head::Ours(length)),
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
    /// With its head.
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

    /// Reads what follows the head.
    ///
    /// # Errors
    /// When it is no hello.
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

impl Answer {
    /// With its head.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut body = Writer::default();
        match self {
            Answer::Welcome { nonce, proof } => body.u8(0).bytes(nonce).bytes(proof),
            Answer::Version(version) => body.u8(1).u16(*version),
            Answer::NotAMember => body.u8(2),
            Answer::AnotherSite => body.u8(3),
            Answer::Full => body.u8(4),
        };
        with_head(&body)
    }

    /// Reads what follows the head.
    ///
    /// # Errors
    /// When it is no answer.
    pub fn parse(body: &[u8]) -> Result<Answer, Malformed> {
        let mut reader = Reader(body);
        let answer = match reader.u8()? {
            0 => Answer::Welcome { nonce: reader.array()?, proof: reader.array()? },
            1 => Answer::Version(reader.u16()?),
            2 => Answer::NotAMember,
            3 => Answer::AnotherSite,
            4 => Answer::Full,
            _ => return Err(Malformed),
        };
        reader.end()?;
        Ok(answer)
    }
}

/// What was said, as proofs and keys are made of it.
fn transcript(hello: &Hello, nonce: &Nonce) -> [u8; 32] {
    digest(&[&hello.to_bytes()[..], nonce].concat())
}

/// The called's welcome, and the session that it opens if the caller can prove itself.
pub fn welcome(hello: &Hello, key: &PairKey, nonce: Nonce) -> (Answer, Seals) {
    let said = transcript(hello, &nonce);
    let proof = key.mac(&[b"called", &said]);
    (Answer::Welcome { nonce, proof }, Seals::new(key, &said, Role::Called))
}

/// The caller's session, if the called has proved itself.
pub fn welcomed(hello: &Hello, key: &PairKey, nonce: &Nonce, proof: &[u8; 32]) -> Option<Seals> {
    let said = transcript(hello, nonce);
    let right = key.mac(&[b"called", &said]);
    bool::from(right.ct_eq(proof)).then(|| Seals::new(key, &said, Role::Caller))
}

/// Which side of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Role {
    Caller,
    Called,
}

/// Bytes of a seal.
pub const SEAL: usize = 16;

/// Seals what is said in a session, and opens what is heard. Each message has its number under its seal: none can be left out,
/// repeated or moved.
pub struct Seals {
    ours: [u8; 32],
    theirs: [u8; 32],
    sealed: u64,
    opened: u64,
}

impl std::fmt::Debug for Seals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seals").field("sealed", &self.sealed).field("opened", &self.opened).finish()
    }
}

impl Seals {
    fn new(key: &PairKey, said: &[u8; 32], role: Role) -> Seals {
        let (caller, called) = (key.derive("caller", said), key.derive("called's", said));
        let (ours, theirs) = match role {
            Role::Caller => (caller, called),
            Role::Called => (called, caller),
        };
        Seals { ours, theirs, sealed: 0, opened: 0 }
    }

    /// The message as it goes out: its length, itself, its seal.
    pub fn seal(&mut self, message: &[u8]) -> Vec<u8> {
        let seal = mac(&self.ours, &[&self.sealed.to_be_bytes(), message]);
        self.sealed += 1;
        let mut frame = Writer::default();
        frame.u16((message.len() + SEAL) as u16).bytes(message).bytes(&seal[..SEAL]);
        frame.0
    }

    /// The message in a frame, without its length.
    ///
    /// # Errors
    /// When it is not the other side's next one.
    pub fn open<'a>(&mut self, frame: &'a [u8]) -> Result<&'a [u8], Malformed> {
        let at = frame.len().checked_sub(SEAL).ok_or(Malformed)?;
        let (message, seal) = frame.split_at(at);
        let right = mac(&self.theirs, &[&self.opened.to_be_bytes(), message]);
        if !bool::from(right[..SEAL].ct_eq(seal)) {
            return Err(Malformed);
        }
        self.opened += 1;
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
    fn two_that_share_a_key_understand_each_other_and_nobody_else_does() {
        let (keys, others) = (Keys::generate().unwrap(), Keys::generate().unwrap());
        let bytes = hello().to_bytes();
        let Head::Ours(n) = head(bytes[..HEAD].try_into().unwrap()).unwrap() else { panic!() };
        let heard = Hello::parse(&bytes[HEAD..HEAD + n]).unwrap();
        assert_eq!(heard, hello());
        let (answer, mut called) = welcome(&heard, &key(&keys), [9; 32]);
        let Answer::Welcome { nonce, proof } = Answer::parse(&answer.to_bytes()[HEAD..]).unwrap() else {
            panic!()
        };
        assert!(welcomed(&hello(), &key(&others), &nonce, &proof).is_none(), "another mesh's key");
        let lied = Hello { purpose: Purpose::Collect, ..hello() };
        assert!(welcomed(&lied, &key(&keys), &nonce, &proof).is_none(), "changed on the way");
        let mut caller = welcomed(&hello(), &key(&keys), &nonce, &proof).unwrap();

        let (one, two) = (caller.seal(b"one"), caller.seal(b"two"));
        assert_eq!(called.open(&two[2..]), Err(Malformed), "out of turn");
        assert_eq!(called.open(&one[2..]).unwrap(), b"one");
        assert_eq!(called.open(&one[2..]), Err(Malformed), "again");
        assert_eq!(caller.open(&two[2..]), Err(Malformed), "given back");
        let mut changed = two.clone();
        changed[3] ^= 1;
        assert_eq!(called.open(&changed[2..]), Err(Malformed));
        assert_eq!(called.open(&two[2..]).unwrap(), b"two");
        assert_eq!(called.open(b"short"), Err(Malformed));
    }

    #[test]
    fn another_version_is_known_by_its_head() {
        let mut bytes = hello().to_bytes();
        bytes[7] = 9;
        assert_eq!(head(bytes[..HEAD].try_into().unwrap()), Ok(Head::Version(9)));
        assert_eq!(head(b"SSH-2.0-Op"), Err(Malformed));
        assert_eq!(head(b"fpmesh\x00\x01\xff\xff"), Err(Malformed), "longer than any");
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(hello) = Hello::parse(&bytes) {
                prop_assert_eq!(&hello.to_bytes()[HEAD..], &bytes[..]);
            }
            if let Ok(answer) = Answer::parse(&bytes) {
                prop_assert_eq!(&answer.to_bytes()[HEAD..], &bytes[..]);
            }
        }
    }
}
