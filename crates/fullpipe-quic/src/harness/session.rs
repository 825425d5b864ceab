//! A cryptographic session without cryptography. Compiled once for each stack, whose types it finds
//! in its parent module.

use super::calls::unexpected;
use super::crypto_keys::{CidArgument, keys};
use super::proto::crypto::{
    self, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, UnsupportedVersion,
};
use super::proto::transport_parameters::TransportParameters;
use super::proto::{Side, TransportError};
use crate::harness::crypto::{Level, Message, NullKey, Progress, SAMPLE_BYTES};
use std::any::Any;
use std::sync::Arc;

/// What remains of the handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// Client: `ClientHello` is to be sent.
    SendHello,
    /// Waits for the peer's first message.
    AwaitHello,
    /// Server: `ServerHello` is to be sent, and handshake keys to be installed.
    AnswerHello,
    /// Server: `ServerParameters` is to be sent, and data keys to be installed.
    SendParameters,
    /// Client: handshake keys are to be installed.
    InstallHandshakeKeys,
    /// Waits for the peer's second message.
    AwaitParameters,
    /// Client: `Finished` is to be sent, and data keys to be installed.
    SendFinished,
    /// Complete.
    Done,
}

/// One side's session.
pub(super) struct Session {
    side: Side,
    step: Step,
    parameters: Vec<u8>,
    peer: Option<Vec<u8>>,
    received: Vec<u8>,
    progress: Option<Arc<Progress>>,
}

impl Session {
    /// A session with this side's `parameters`, which records the progress of what it sends.
    pub(super) fn new(side: Side, parameters: &TransportParameters, progress: Option<Arc<Progress>>) -> Self {
        let mut encoded = Vec::new();
        parameters.write(&mut encoded);
        let step = if side.is_client() { Step::SendHello } else { Step::AwaitHello };
        Session { side, step, parameters: encoded, peer: None, received: Vec::new(), progress }
    }

    fn keys(&self, level: Level) -> Keys {
        keys(NullKey::new(level), self.progress.clone())
    }
}

impl crypto::Session for Session {
    fn initial_keys(&self, _: CidArgument<'_>, _: Side) -> Keys {
        self.keys(Level::Initial)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        self.peer.as_ref().map(|_| Box::new(()) as Box<dyn Any>)
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        None
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        None
    }

    fn early_data_accepted(&self) -> Option<bool> {
        None
    }

    fn is_handshaking(&self) -> bool {
        self.step != Step::Done
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        self.received.extend_from_slice(buf);
        let mut news = false;
        while let Some((message, contents)) = Message::read(&mut self.received) {
            self.step = match (message, self.step) {
                (Message::ClientHello, Step::AwaitHello) if self.side.is_server() => Step::AnswerHello,
                (Message::ServerHello, Step::AwaitHello) => Step::InstallHandshakeKeys,
                (Message::ServerParameters, Step::InstallHandshakeKeys | Step::AwaitParameters) => {
                    Step::SendFinished
                }
                (Message::Finished, Step::AwaitParameters) => Step::Done,
                (_, step) => return Err(unexpected(format!("{message:?} while {step:?}"))),
            };
            if matches!(message, Message::ClientHello | Message::ServerParameters) {
                self.peer = Some(contents);
                news = true;
            }
        }
        Ok(news)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        let read = |contents: &Vec<u8>| TransportParameters::read(self.side, &mut contents.as_slice());
        Ok(self.peer.as_ref().map(read).transpose()?)
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let (next, message, level) = match self.step {
            Step::SendHello => (Step::AwaitHello, Some(Message::ClientHello), None),
            Step::AnswerHello => (Step::SendParameters, Some(Message::ServerHello), Some(Level::Handshake)),
            Step::SendParameters => {
                (Step::AwaitParameters, Some(Message::ServerParameters), Some(Level::Data))
            }
            Step::InstallHandshakeKeys => (Step::AwaitParameters, None, Some(Level::Handshake)),
            Step::SendFinished => (Step::Done, Some(Message::Finished), Some(Level::Data)),
            Step::AwaitHello | Step::AwaitParameters | Step::Done => return None,
        };
        self.step = next;
        match message {
            Some(message @ (Message::ClientHello | Message::ServerParameters)) => {
                message.write(&self.parameters, buf);
            }
            Some(message) => message.write(&[], buf),
            None => {}
        }
        level.map(|level| self.keys(level))
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        Some(self.keys(Level::Data).packet)
    }

    fn is_valid_retry(&self, _: CidArgument<'_>, _: &[u8], _: &[u8]) -> bool {
        false
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        _: &[u8],
        _: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        output.fill(0);
        Ok(())
    }
}

/// Header protection that leaves headers as they are.
#[derive(Clone, Copy)]
pub(super) struct PlainHeader;

impl HeaderKey for PlainHeader {
    fn decrypt(&self, _: usize, _: &mut [u8]) {}

    fn encrypt(&self, _: usize, _: &mut [u8]) {}

    fn sample_size(&self) -> usize {
        SAMPLE_BYTES
    }
}

/// Signs stateless reset tokens with the connection ID itself.
pub(super) struct PlainHmac;

impl crypto::HmacKey for PlainHmac {
    fn sign(&self, data: &[u8], out: &mut [u8]) {
        out.fill(0);
        let len = data.len().min(out.len());
        out[..len].copy_from_slice(&data[..len]);
    }

    fn signature_len(&self) -> usize {
        32
    }

    fn verify(&self, data: &[u8], signature: &[u8]) -> Result<(), crypto::CryptoError> {
        let mut expected = [0; 32];
        self.sign(data, &mut expected);
        if signature == expected { Ok(()) } else { Err(crypto::CryptoError) }
    }
}

/// The initial keys of a server, for `version` 1 and the drafts alike.
pub(super) fn server_initial_keys() -> Result<Keys, UnsupportedVersion> {
    Ok(keys(NullKey::new(Level::Initial), None))
}
