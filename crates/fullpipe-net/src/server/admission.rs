//! How many connections there may be, in all and from one address.

use super::lock;
use ipnet::Ipv6Net;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

/// Descriptors that are no connection's: standard streams, listeners, a log, and what the library opens for moments.
const RESERVED: u64 = 64;

/// The connections there are. A stream's connection counts from being accepted until it is closed, whoever
/// holds it meanwhile.
#[derive(Debug)]
pub(super) struct Admission {
    most: usize,
    most_per_address: usize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// Too many in all.
    Server,
    /// Too many from this address.
    Address,
}

impl Full {
    pub fn reason(self) -> &'static str {
        match self {
            Full::Server => "too many connections",
            Full::Address => "too many connections from this address",
        }
    }
}

impl Admission {
    /// At most `most` at once, and no more than there can be descriptors.
    pub fn new(most: usize, most_per_address: usize) -> Arc<Admission> {
        use nix::sys::resource::{Resource, getrlimit};
        let descriptors = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
        let most = most.min(usize::try_from(descriptors.saturating_sub(RESERVED)).unwrap_or(usize::MAX));
        Arc::new(Admission { most: most.max(1), most_per_address, open: Mutex::default() })
    }

    /// A place for one connection from `ip`, until it is dropped.
    pub fn take(self: &Arc<Self>, ip: IpAddr) -> Result<Place, Full> {
        let holder = holder(ip);
        let mut open = lock(&self.open);
        if open.all >= self.most {
            return Err(Full::Server);
        }
        let of_address = open.by_address.entry(holder).or_default();
        if *of_address >= self.most_per_address {
            return Err(Full::Address);
        }
        *of_address += 1;
        open.all += 1;
        Ok(Place { admission: Arc::clone(self), holder })
    }

    /// Connections there are now.
    pub fn count(&self) -> usize {
        lock(&self.open).all
    }
}

/// Whom an address belongs to: a host has a whole /64 of IPv6 to choose from (RFC 7421).
fn holder(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => Ipv6Net::new_assert(ip, 64).network().into(),
        v4 => v4,
    }
}

/// A place among the connections.
#[derive(Debug)]
pub(super) struct Place {
    admission: Arc<Admission>,
    holder: IpAddr,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = lock(&self.admission.open);
        open.all -= 1;
        if let Some(n) = open.by_address.get_mut(&self.holder) {
            *n -= 1;
            if *n == 0 {
                open.by_address.remove(&self.holder);
            }
        }
    }
}

/// Lets this process have as many descriptors as it may. Gives how many that are.
///
/// # Errors
/// The system's.
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
    fn places_are_bounded_in_all_and_by_address_and_are_given_back() {
        let admission = Admission::new(3, 2);
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let first = admission.take(ip("192.0.2.1")).unwrap();
        let _second = admission.take(ip("::ffff:192.0.2.1")).unwrap();
        assert_eq!(admission.take(ip("192.0.2.1")).unwrap_err(), Full::Address);
        let _third = admission.take(ip("192.0.2.2")).unwrap();
        assert_eq!(admission.take(ip("192.0.2.3")).unwrap_err(), Full::Server);
        assert_eq!(admission.count(), 3);
        drop(first);
        assert!(admission.take(ip("192.0.2.1")).is_ok());
        assert_eq!((admission.count(), lock(&admission.open).by_address.len()), (2, 2));
    }

    #[test]
    fn a_host_cannot_escape_its_bound_through_the_addresses_of_its_network() {
        let admission = Admission::new(10, 1);
        let _first = admission.take("2001:db8::1".parse().unwrap()).unwrap();
        assert_eq!(admission.take("2001:db8::ffff:1".parse().unwrap()).unwrap_err(), Full::Address);
        assert!(admission.take("2001:db8:0:1::1".parse().unwrap()).is_ok());
    }
}
