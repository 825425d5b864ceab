//! What two fullpipe ends tell each other beyond iperf3's protocol, after [`State::Extension`](super::State).
//!
//! The client asks by a key in its parameters, which a stock server ignores; the server says [`Hello`]
//! before it asks for the streams, and then sends a [`Report`] of its sending sockets every interval.
//! A third kind of connection answers each 16-byte probe at once, so that the client can measure the RTT
//! while the test runs: its first bytes are the test's cookie with [`ECHO_MARK`] for its zero.

use crate::printable;
use crate::sample::SocketSample;
use hmac::{KeyInit, Mac};
use serde::{Deserialize, Serialize};

/// The byte that turns a cookie into the opening of an echo connection.
pub const ECHO_MARK: u8 = b'!';
/// Bytes of a probe: the client's time stamp and room for the server's, nanoseconds, big-endian.
pub const PROBE_LEN: usize = 16;
/// The longest extension message accepted.
pub const MAX_MESSAGE: usize = 1024 * 1024;

/// What a fullpipe client asks for, in its parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Of these extensions; 1 now.
    pub version: u32,
    /// Milliseconds between reports.
    #[serde(default)]
    pub report_ms: u32,
    /// Whether the sending sockets are to be closed without saying good-bye, so that the kernel caches no
    /// metrics of the path (`tcp_update_metrics` runs on an orderly close only).
    #[serde(default)]
    pub abort: bool,
}

/// A fullpipe server's first extension message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// Of the server.
    pub version: String,
    /// Random text to answer with a [`Proof`], when the server wants one.
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
    /// The same as a terminal may show it.
    pub(crate) fn printable(mut self) -> Hello {
        self.version = printable::line(&self.version).into_owned();
        for text in [&mut self.tcp_rmem, &mut self.tcp_wmem].into_iter().flatten() {
            *text = printable::line(text).into_owned();
        }
        self
    }
}

/// The client's answer to a challenge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Proof {
    /// HMAC-SHA256 under the secret, of cookie and challenge, in hexadecimal.
    pub mac: String,
}

/// The server's sending sockets at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Seconds since the server began to send.
    pub seconds: f64,
    /// By stream.
    pub sockets: Vec<(u64, SocketSample)>,
}

/// The [`Proof`] of knowing `secret`.
pub fn prove(secret: &str, cookie: &super::Cookie, challenge: &str) -> Proof {
    Proof { mac: hex(&keyed(secret, cookie, challenge).finalize().into_bytes()) }
}

/// Whether `proof` was made with `secret`; takes the same time whatever is wrong.
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
    fn only_the_right_secret_cookie_and_challenge_prove_anything() {
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
