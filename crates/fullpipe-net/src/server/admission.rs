//! Limits on the number of connections, in total and per address.

use super::lock;
use ipnet::Ipv6Net;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

/// Descriptors reserved for other uses: standard streams, listeners, a log, and temporary files of
/// libraries.
const RESERVED_DESCRIPTORS: u64 = 64;

/// Counts open connections. A stream's connection counts from accept to close, whichever thread
/// owns it.
#[derive(Debug)]
pub(super) struct Admission {
    max: usize,
    max_per_address: usize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// Why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// Too many connections in total.
    Server,
    /// Too many connections from this address.
    Address,
}

impl Full {
    /// The reason where tests and transfers are limited.
    pub fn clients_reason(self) -> &'static str {
        match self {
            Full::Server => "too many clients",
            Full::Address => "too many clients from this address",
        }
    }

    pub fn reason(self) -> &'static str {
        match self {
            Full::Server => "too many connections",
            Full::Address => "too many connections from this address",
        }
    }
}

impl Admission {
    /// Allows at most `max` connections, and no more than available descriptors.
    pub fn new(max: usize, max_per_address: usize) -> Arc<Admission> {
        use nix::sys::resource::{Resource, getrlimit};
        let descriptors = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
        let descriptors = usize::try_from(descriptors.saturating_sub(RESERVED_DESCRIPTORS));
        Admission::within(descriptors.unwrap_or(usize::MAX), max, max_per_address)
    }

    /// Fewer descriptors than connections reduce the share of an address in proportion.
    fn within(descriptors: usize, max: usize, max_per_address: usize) -> Arc<Admission> {
        let open = Mutex::default();
        if descriptors >= max {
            return Arc::new(Admission { max: max.max(1), max_per_address, open });
        }
        let share = max_per_address as f64 / max as f64;
        let max_per_address = ((descriptors as f64 * share) as usize).clamp(1, max_per_address.max(1));
        Arc::new(Admission { max: descriptors.max(1), max_per_address, open })
    }

    /// For tests and transfers: one address can hold at most a quarter of the permits, and one.
    pub fn of_clients(max: usize) -> Arc<Admission> {
        Arc::new(Admission { max, max_per_address: (max / 4).max(1), open: Mutex::default() })
    }

    /// Maximum of one address.
    pub fn max_per_address(&self) -> usize {
        self.max_per_address
    }

    /// Acquires a permit for one connection from `ip`, released on drop.
    pub fn acquire(self: &Arc<Self>, ip: IpAddr) -> Result<Permit, Full> {
        let group = address_group(ip);
        let mut open = lock(&self.open);
        if open.all >= self.max {
            return Err(Full::Server);
        }
        let of_address = open.by_address.entry(group).or_default();
        if *of_address >= self.max_per_address {
            return Err(Full::Address);
        }
        *of_address += 1;
        open.all += 1;
        Ok(Permit { admission: Arc::clone(self), group })
    }

    /// Number of open connections.
    pub fn count(&self) -> usize {
        lock(&self.open).all
    }
}

/// The unit of address limits: hosts can choose from a whole IPv6 /64 (RFC 7421).
pub(super) fn address_group(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => Ipv6Net::new_assert(ip, 64).network().into(),
        v4 => v4,
    }
}

/// A permit for one connection.
#[derive(Debug)]
pub(super) struct Permit {
    admission: Arc<Admission>,
    group: IpAddr,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut open = lock(&self.admission.open);
        open.all -= 1;
        if let Some(n) = open.by_address.get_mut(&self.group) {
            *n -= 1;
            if *n == 0 {
                open.by_address.remove(&self.group);
            }
        }
    }
}

/// Raises the descriptor limit to its hard limit and returns it.
///
/// # Errors
/// If the limit cannot be changed.
pub fn raise_descriptor_limit() -> std::io::Result<u64> {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    Ok(hard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_limited_in_total_and_per_address_and_released() {
        let admission = Admission::new(3, 2);
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let first = admission.acquire(ip("192.0.2.1")).unwrap();
        let _second = admission.acquire(ip("::ffff:192.0.2.1")).unwrap();
        assert_eq!(admission.acquire(ip("192.0.2.1")).unwrap_err(), Full::Address);
        let _third = admission.acquire(ip("192.0.2.2")).unwrap();
        assert_eq!(admission.acquire(ip("192.0.2.3")).unwrap_err(), Full::Server);
        assert_eq!(admission.count(), 3);
        drop(first);
        assert!(admission.acquire(ip("192.0.2.1")).is_ok());
        assert_eq!((admission.count(), lock(&admission.open).by_address.len()), (2, 2));
    }

    #[test]
    fn one_address_leaves_clients_of_others_room() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        for (max, of_one) in [(1, 1), (2, 1), (4, 1), (8, 2), (1024, 256)] {
            let clients = Admission::of_clients(max);
            let mut held: Vec<Permit> =
                (0..of_one).map(|_| clients.acquire(ip("192.0.2.1")).unwrap()).collect();
            assert!(clients.acquire(ip("192.0.2.1")).is_err());
            for other in 2..=max / of_one {
                held.extend((0..of_one).map(|_| clients.acquire([192, 0, 2, other as u8].into()).unwrap()));
            }
            assert_eq!(clients.acquire(ip("192.0.2.99")).unwrap_err(), Full::Server);
        }
        assert_eq!(Admission::of_clients(0).acquire(ip("192.0.2.1")).unwrap_err(), Full::Server);
    }

    #[test]
    fn few_descriptors_reduce_the_share_of_an_address() {
        let of = |descriptors| {
            let admission = Admission::within(descriptors, 4096, 1024);
            (admission.max, admission.max_per_address)
        };
        assert_eq!((of(8000), of(960), of(2), of(0)), ((4096, 1024), (960, 240), (2, 1), (1, 1)));
    }

    #[test]
    fn the_address_limit_covers_an_ipv6_network() {
        let admission = Admission::new(10, 1);
        let _first = admission.acquire("2001:db8::1".parse().unwrap()).unwrap();
        assert_eq!(admission.acquire("2001:db8::ffff:1".parse().unwrap()).unwrap_err(), Full::Address);
        assert!(admission.acquire("2001:db8:0:1::1".parse().unwrap()).is_ok());
    }
}
