//! Addresses that stand for others.

use std::net::{IpAddr, Ipv6Addr};

/// Where the hashes of addresses are: the lower half of `100::/64`, which leads nowhere (RFC 6666), so that nobody takes
/// them for addresses.
pub const ANONYMISED_PREFIX: Ipv6Addr = Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0);

/// Whether it stands for another.
pub fn is_anonymised(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.octets()[..8] == ANONYMISED_PREFIX.octets()[..8])
}
