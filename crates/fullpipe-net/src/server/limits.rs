//! Limits for clients, and networks that may connect.

use fullpipe_units::{ParseError, Rate};
use ipnet::IpNet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

/// Limits for clients.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Maximum concurrent connections of any kind, also limited by descriptors.
    pub connections: usize,
    /// Maximum concurrent connections per address (IPv6: per /64).
    pub connections_per_address: usize,
    /// Maximum concurrent tests and HTTP transfers; those of one address (IPv6: per /64) are at
    /// most a quarter of them.
    pub clients: usize,
    /// Maximum streams per direction of a test.
    pub streams: u32,
    /// Maximum duration of a test or transfer, seconds.
    pub seconds: u32,
    /// Maximum bytes of a test or transfer, each way.
    pub bytes: Option<u64>,
    /// Maximum rate of an address (IPv6: of a /64), each way: all its tests, streams and other
    /// connections together, over TCP and UDP.
    pub rate: Option<Rate>,
    /// Timeout for each step before and after the data.
    pub handshake: Duration,
    /// Timeout without progress during the data phase; a test or transfer must also reach
    /// [`MIN_BYTES_PER_SECOND`] over each such period.
    pub idle: Duration,
}

/// Least average rate of a test or transfer, in either direction: each holds a place. With a
/// maximum rate, half of the share of a place if that is less.
pub const MIN_BYTES_PER_SECOND: u64 = 500;

impl Limits {
    /// The bytes that a test or transfer must transfer over each idle timeout.
    pub(super) fn min_bytes(&self, places: usize) -> u64 {
        let share = self.rate.map_or(u64::MAX, |rate| rate.as_bytes_per_sec() / (2 * places.max(1) as u64));
        (MIN_BYTES_PER_SECOND.min(share) as f64 * self.idle.as_secs_f64()) as u64
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 4096,
            connections_per_address: 1024,
            clients: 1024,
            streams: crate::iperf3::MAX_STREAMS,
            seconds: 86_400,
            bytes: None,
            rate: None,
            handshake: Duration::from_secs(15),
            idle: Duration::from_secs(60),
        }
    }
}

/// An address range: `192.0.2.0/24`, `2001:db8::/32`, `::1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(IpNet);

impl Network {
    /// Whether `ip` is in the range. IPv4-mapped addresses count as IPv4.
    pub fn contains(&self, ip: IpAddr) -> bool {
        self.0.contains(&ip.to_canonical())
    }
}

impl FromStr for Network {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let wrong = |reason| ParseError::new(text, reason);
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr =
            address.parse().map_err(|_| wrong("expected an address or a network such as `192.0.2.0/24`"))?;
        let Some(prefix) = prefix else { return Ok(Network(address.into())) };
        let network = prefix.parse().ok().and_then(|prefix| IpNet::new(address, prefix).ok());
        network
            .map(Network)
            .ok_or_else(|| wrong("the prefix length must be between 0 and 32 (IPv4) or 128 (IPv6)"))
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The error for a test or transfer of `bytes` over an idle timeout, if they are too few.
pub(super) fn too_slow(bytes: u64, min_bytes: u64, idle: Duration) -> Option<String> {
    (bytes < min_bytes).then(|| format!("{bytes} bytes in {idle:?}, less than {min_bytes}"))
}

/// Whether `ip` may connect: an empty list allows all.
pub(super) fn allowed(list: &[Network], ip: IpAddr) -> bool {
    list.is_empty() || list.iter().any(|n| n.contains(ip))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_contain_their_addresses_and_no_others() {
        let contains =
            |network: &str, ip: &str| network.parse::<Network>().unwrap().contains(ip.parse().unwrap());
        assert!(contains("192.0.2.0/24", "192.0.2.255"));
        assert!(contains("192.0.2.0/24", "::ffff:192.0.2.7"), "mapped");
        assert!(!contains("192.0.2.0/24", "192.0.3.0"));
        assert!(contains("0.0.0.0/0", "8.8.8.8"));
        assert!(!contains("0.0.0.0/0", "::1"));
        assert!(contains("2001:db8::/32", "2001:db8:ffff::1"));
        assert!(contains("::1", "::1") && !contains("::1", "::2"));
        assert!(contains("::/0", "::2"));
    }

    #[test]
    fn the_least_rate_is_lower_if_the_maximum_rate_is_shared() {
        let limits = |rate: u64| Limits {
            rate: Some(Rate::from_bytes_per_sec(rate)),
            idle: Duration::from_secs(10),
            ..Limits::default()
        };
        assert_eq!(Limits::default().min_bytes(256), 30_000);
        assert_eq!((limits(1_000_000).min_bytes(256), limits(10_240).min_bytes(256)), (5000, 200));
    }

    #[test]
    fn bad_networks_are_explained() {
        for text in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "10.0.0.0/-1", "10.0.0.0/x"] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }
}
