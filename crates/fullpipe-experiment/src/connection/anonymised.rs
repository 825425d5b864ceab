//! Pseudonymous addresses.

use std::net::{IpAddr, Ipv6Addr};

/// Prefix of hashed addresses: the discard-only prefix `100::/64` (RFC 6666), which is never a real
/// address.
pub const ANONYMISED_PREFIX: Ipv6Addr = Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0);

/// Whether `ip` is a hashed address.
pub fn is_anonymised(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.octets()[..8] == ANONYMISED_PREFIX.octets()[..8])
}
