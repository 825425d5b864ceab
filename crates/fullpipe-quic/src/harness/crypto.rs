//! Encryption that encrypts nothing: packets keep their real sizes, and a packet is accepted only
//! as the one that it was sent as.

use super::frames;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Length of the tag, as that of AES-GCM and ChaCha20-Poly1305.
pub const TAG_BYTES: usize = 16;
/// Bytes of a packet that header protection samples.
pub const SAMPLE_BYTES: usize = 16;

/// The sending end's progress in its first unidirectional stream, read from its packets.
#[derive(Debug, Default)]
pub struct Progress {
    sent: AtomicU64,
    resent: AtomicU64,
}

impl Progress {
    /// Bytes of the stream that have been sent at least once.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Packets with bytes that had been sent before.
    pub fn resent(&self) -> u64 {
        self.resent.load(Ordering::Relaxed)
    }

    /// A packet with these frames is sent.
    fn record(&self, frames: &[u8]) {
        let sent = self.sent();
        let mut end = sent;
        let mut resent = false;
        frames::for_each_stream(frames, |stream, range| {
            if stream == frames::FIRST_CLIENT_STREAM {
                resent |= range.start < sent && !range.is_empty();
                end = end.max(range.end);
            }
        });
        self.sent.store(end, Ordering::Relaxed);
        self.resent.fetch_add(u64::from(resent), Ordering::Relaxed);
    }
}

/// The key of a packet number space, in one direction. It binds packet number and space into the
/// tag as an AEAD's nonce and key do; without that, the number that a receiver reconstructs for a
/// late packet would be accepted even where it is wrong.
#[derive(Clone, Debug)]
pub struct NullKey {
    level: Level,
    /// Where the sending end's progress is recorded.
    progress: Option<Arc<Progress>>,
}

/// Encryption levels, the packet number spaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// Before anything was exchanged.
    Initial,
    /// Until the peer is known.
    Handshake,
    /// Application data.
    Data,
}

impl NullKey {
    /// A key of `level`.
    pub fn new(level: Level) -> Self {
        NullKey { level, progress: None }
    }

    /// The same key, which records the progress of the stream.
    pub fn recording(self, progress: Option<Arc<Progress>>) -> Self {
        NullKey { progress, ..self }
    }

    fn tag(&self, packet: u64) -> [u8; TAG_BYTES] {
        let mut tag = [0x5a; TAG_BYTES];
        tag[..8].copy_from_slice(&packet.to_le_bytes());
        tag[8] = self.level as u8;
        tag
    }

    /// Completes packet number `packet`: a header, frames and room for the tag.
    pub fn seal(&self, packet: u64, buf: &mut [u8], header_len: usize) {
        let (content, tag) = buf.split_at_mut(buf.len() - TAG_BYTES);
        tag.copy_from_slice(&self.tag(packet));
        if let Some(progress) = &self.progress {
            progress.record(&content[header_len..]);
        }
    }

    /// The length of the frames in `payload`, if it was sealed as this packet.
    pub fn open(&self, packet: u64, payload: &[u8]) -> Option<usize> {
        let len = payload.len().checked_sub(TAG_BYTES)?;
        (payload[len..] == self.tag(packet)).then_some(len)
    }
}

/// A message of the handshake. All have fixed sizes, so that the sizes of packets do not depend on
/// the order and number of transport parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// The client's first, with its transport parameters.
    ClientHello,
    /// The server's first.
    ServerHello,
    /// The server's second, with its transport parameters.
    ServerParameters,
    /// The client's second.
    Finished,
}

impl Message {
    const ALL: [Message; 4] =
        [Message::ClientHello, Message::ServerHello, Message::ServerParameters, Message::Finished];
    /// Its kind and the length of its contents.
    const HEADER: usize = 3;

    fn size(self) -> usize {
        match self {
            Message::ClientHello | Message::ServerParameters => 512,
            Message::ServerHello => 96,
            Message::Finished => 52,
        }
    }

    /// Appends the message with `contents`, which must fit.
    pub fn write(self, contents: &[u8], out: &mut Vec<u8>) {
        assert!(contents.len() + Self::HEADER <= self.size(), "{self:?} of {} bytes", contents.len());
        let end = out.len() + self.size();
        out.push(self as u8);
        out.extend_from_slice(&(contents.len() as u16).to_be_bytes());
        out.extend_from_slice(contents);
        out.resize(end, 0);
    }

    /// Removes the first complete message from `received`. Returns it with its contents.
    pub fn read(received: &mut Vec<u8>) -> Option<(Message, Vec<u8>)> {
        let message = Message::ALL.into_iter().find(|m| Some(&(*m as u8)) == received.first())?;
        if received.len() < message.size() {
            return None;
        }
        let len = usize::from(u16::from_be_bytes([received[1], received[2]]));
        let contents = received.get(Self::HEADER..Self::HEADER + len)?.to_vec();
        received.drain(..message.size());
        Some((message, contents))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_is_accepted_under_its_own_number_and_space_only() {
        let key = NullKey::new(Level::Data);
        let mut packet = vec![7; 40];
        key.seal(9, &mut packet, 10);
        assert_eq!(key.open(9, &packet[10..]), Some(14));
        assert_eq!(key.open(9 + (1 << 16), &packet[10..]), None, "a wrongly reconstructed number");
        assert_eq!(NullKey::new(Level::Handshake).open(9, &packet[10..]), None);
        assert_eq!(key.open(9, &packet[30..]), None);
    }

    #[test]
    fn messages_are_read_in_parts_and_one_after_another() {
        let mut sent = Vec::new();
        Message::ServerHello.write(b"", &mut sent);
        Message::ServerParameters.write(b"parameters", &mut sent);
        let mut received = sent[..100].to_vec();
        assert_eq!(Message::read(&mut received), Some((Message::ServerHello, vec![])));
        assert_eq!(Message::read(&mut received), None);
        received.extend_from_slice(&sent[100..]);
        assert_eq!(Message::read(&mut received), Some((Message::ServerParameters, b"parameters".to_vec())));
        assert!(received.is_empty());
    }
}
