//! The extension of iperf3's protocol between two fullpipe ends, after
//! [`State::Extension`](super::State).
//!
//! The client requests it with a key in its parameters, which a stock server ignores. The server
//! sends [`Hello`] before it requests the streams, and then a [`Report`] of its sending sockets at
//! intervals. A third kind of connection echoes 16-byte probes, so that the client can measure the
//! RTT during the test: it opens with the test's cookie, with [`ECHO_MARK`] in place of the closing
//! zero.

use crate::sample::{SocketSample, peer_text};
use hmac::{KeyInit, Mac};
use serde::{Deserialize, Serialize};

/// The byte that turns a cookie into the opening of an echo connection.
pub const ECHO_MARK: u8 = b'!';
/// Bytes of a probe: timestamps of client and server, nanoseconds, big-endian.
pub const PROBE_LEN: usize = 16;
/// Maximum length of an extension message.
pub const MAX_MESSAGE: usize = 1024 * 1024;

/// A fullpipe client's request, in its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Extension version; currently 1.
    pub version: u32,
    /// Milliseconds between reports.
    #[serde(default)]
    pub report_ms: u32,
    /// Whether the sending sockets are reset at the end, so that the kernel caches no path metrics
    /// (`tcp_update_metrics` runs only on an orderly close).
    #[serde(default)]
    pub abort: bool,
}

/// A fullpipe server's first extension message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// Server version.
    pub version: String,
    /// Challenge to answer with a [`Proof`], if the server requires a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub challenge: Option<String>,
    /// The server's `net.ipv4.tcp_rmem`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_rmem: Option<String>,
    /// The server's `net.ipv4.tcp_wmem`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_wmem: Option<String>,
}

impl Hello {
    /// Makes all text printable and short.
    pub(crate) fn printable(mut self) -> Hello {
        self.version = peer_text(&self.version);
        for text in [&mut self.tcp_rmem, &mut self.tcp_wmem].into_iter().flatten() {
            *text = peer_text(text);
        }
        self
    }
}

/// The client's answer to a challenge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Proof {
    /// HMAC-SHA256 of cookie and challenge under the secret, in hexadecimal.
    pub mac: String,
}

/// The server's sending sockets at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Seconds since the server started to send.
    pub seconds: f64,
    /// Samples by stream.
    pub sockets: Vec<(u64, SocketSample)>,
}

/// Computes the [`Proof`] for `secret`.
pub fn prove(secret: &str, cookie: &super::Cookie, challenge: &str) -> Proof {
    Proof { mac: hex(&keyed(secret, cookie, challenge).finalize().into_bytes()) }
}

/// Verifies `proof` in constant time.
pub fn verify(secret: &str, cookie: &super::Cookie, challenge: &str, proof: &Proof) -> bool {
    let bytes: Option<Vec<u8>> = (proof.mac.len().is_multiple_of(2) && proof.mac.is_ascii())
        .then(|| {
            (0..proof.mac.len())
                .step_by(2)
                .map(|i| u8::from_str_radix(&proof.mac[i..i + 2], 16).ok())
                .collect()
        })
        .flatten();
    bytes.is_some_and(|b| keyed(secret, cookie, challenge).verify_slice(&b).is_ok())
}

fn keyed(secret: &str, cookie: &super::Cookie, challenge: &str) -> hmac::Hmac<sha2::Sha256> {
    let mut mac = hmac::Hmac::<sha2::Sha256>::new_from_slice(secret.as_bytes())
        .unwrap_or_else(|_| unreachable!("HMAC takes keys of any length"));
    mac.update(cookie.as_bytes());
    mac.update(challenge.as_bytes());
    mac
}

/// Lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iperf3::Cookie;

    #[test]
    fn a_proof_requires_the_right_secret_cookie_and_challenge() {
        let (cookie, other) = (Cookie::random().unwrap(), Cookie::random().unwrap());
        let proof = prove("hunter2", &cookie, "abc");
        assert!(verify("hunter2", &cookie, "abc", &proof));
        assert!(!verify("hunter3", &cookie, "abc", &proof));
        assert!(!verify("hunter2", &other, "abc", &proof));
        assert!(!verify("hunter2", &cookie, "abd", &proof));
        for mac in ["", "0", "zz", "éé", "00"] {
            assert!(!verify("hunter2", &cookie, "abc", &Proof { mac: mac.into() }));
        }
    }
}
