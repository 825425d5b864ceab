//! Anonymised addresses.

use fullpipe_experiment::connection::{ANONYMISED_PREFIX, is_anonymised};
use hmac::{Hmac, KeyInit, Mac};
use ipnet::{Ipv4Net, Ipv6Net};
use sha2::Sha256;
use std::fmt::{self, Debug, Formatter};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// How addresses are replaced.
#[derive(Clone)]
pub enum Anonymiser {
    /// By the /24, or the /48 for IPv6.
    Prefix,
    /// By a keyed hash (HMAC-SHA256) in [`ANONYMISED_PREFIX`]: 32 bits of the prefix's hash and 32
    /// of the address's, so that common prefixes stay recognisable.
    Hash(Key),
}

/// The key of the hash. It must stay secret: with it, all IPv4 addresses can be tried in minutes.
#[derive(Clone)]
pub struct Key(Hmac<Sha256>);

/// The key is too short.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the key has {0} bytes and could be guessed: it needs at least {MIN_KEY_BYTES}, for example from \
     `head -c 32 /dev/urandom | base64`"
)]
pub struct KeyError(usize);

/// Minimum length of a key in bytes.
const MIN_KEY_BYTES: usize = 16;

impl Debug for Anonymiser {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Anonymiser::Prefix => "Prefix",
            Anonymiser::Hash(_) => "Hash",
        })
    }
}

impl Debug for Key {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

impl Key {
    /// A key from these bytes: the same key gives an address the same hash in every run.
    ///
    /// # Errors
    /// When it is too short.
    pub fn new(secret: &[u8]) -> Result<Key, KeyError> {
        if secret.len() < MIN_KEY_BYTES {
            return Err(KeyError(secret.len()));
        }
        Hmac::new_from_slice(secret).map(Key).map_err(|_| KeyError(secret.len()))
    }

    fn hash(&self, domain: u8, bytes: &[u8]) -> [u8; 4] {
        let mut mac = self.0.clone();
        mac.update(&[domain, bytes.len() as u8]);
        mac.update(bytes);
        let hash = mac.finalize().into_bytes();
        [hash[0], hash[1], hash[2], hash[3]]
    }
}

impl Anonymiser {
    /// Replaces the address of an endpoint; the port stays.
    pub fn anonymise(&self, end: SocketAddr) -> SocketAddr {
        let ip = match self {
            Anonymiser::Prefix => prefix(end.ip()),
            Anonymiser::Hash(_) if is_anonymised(end.ip()) => end.ip(),
            Anonymiser::Hash(key) => {
                let bytes = |ip| match ip {
                    IpAddr::V4(ip) => ip.octets().to_vec(),
                    IpAddr::V6(ip) => ip.octets().to_vec(),
                };
                let mut octets = ANONYMISED_PREFIX.octets();
                octets[8..12].copy_from_slice(&key.hash(b'p', &bytes(prefix(end.ip()))));
                octets[12..].copy_from_slice(&key.hash(b'a', &bytes(end.ip())));
                Ipv6Addr::from(octets).into()
            }
        };
        SocketAddr::new(ip, end.port())
    }
}

/// The typical prefix of a site: /24, or /48 for IPv6.
fn prefix(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => Ipv4Net::new_assert(ip, 24).network().into(),
        IpAddr::V6(ip) => Ipv6Net::new_assert(ip, 48).network().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashed(key: &[u8], end: &str) -> SocketAddr {
        Anonymiser::Hash(Key::new(key).unwrap()).anonymise(end.parse().unwrap())
    }

    #[test]
    fn prefixes_are_24_and_48_bits() {
        let cut = |end: &str| Anonymiser::Prefix.anonymise(end.parse().unwrap()).to_string();
        assert_eq!(cut("192.0.2.77:443"), "192.0.2.0:443");
        assert_eq!(cut("[2001:db8:1:2:3:4:5:6]:443"), "[2001:db8:1::]:443");
    }

    #[test]
    fn hashes_depend_on_the_key_and_preserve_common_prefixes() {
        let key = b"0123456789abcdef";
        let (a, b, other) =
            (hashed(key, "192.0.2.77:443"), hashed(key, "192.0.2.78:80"), hashed(key, "192.0.3.77:443"));
        assert_eq!(a, hashed(key, "192.0.2.77:443"));
        assert_ne!(a.ip(), hashed(b"0123456789abcdeg", "192.0.2.77:443").ip());
        let parts = |end: SocketAddr| match end.ip() {
            IpAddr::V6(ip) => (ip.octets()[..12].to_vec(), ip.octets()[12..].to_vec()),
            IpAddr::V4(ip) => panic!("{ip}"),
        };
        assert_eq!(parts(a).0, parts(b).0);
        assert_ne!(parts(a).1, parts(b).1);
        assert_ne!(parts(a).0, parts(other).0);
        assert_eq!((a.port(), b.port()), (443, 80));
        assert!(is_anonymised(a.ip()) && a.ip().to_string().starts_with("100:"), "{a}");
        assert!(!format!("{:?}", Anonymiser::Hash(Key::new(key).unwrap())).contains("0123"));
    }

    #[test]
    fn a_short_key_is_refused() {
        let error = Key::new(b"secret").unwrap_err().to_string();
        assert!(error.contains("6 bytes") && error.contains("/dev/urandom"), "{error}");
    }
}
