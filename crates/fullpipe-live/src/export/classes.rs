//! The classes that connections are put into, so that there are few however many connections there are.

use crate::connection::Connection;
use crate::filter::Filter;
use std::borrow::Cow;

/// What is not listed.
pub(crate) const OTHER: &str = "other";

/// How connections are told apart that no listed class takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum By {
    /// By these ports: the own one if it is listed, or else the other end's.
    Port(Vec<u16>),
    /// By systemd's unit.
    Unit,
    /// By container.
    Container,
}

/// Puts connections into classes.
#[derive(Clone, PartialEq, Debug)]
pub struct Classes {
    listed: Vec<(String, Filter)>,
    by: By,
}

impl Classes {
    /// The first class of `listed` whose filter wants a connection is its class, otherwise it goes `by` the rule.
    pub fn new(listed: Vec<(String, Filter)>, by: By) -> Classes {
        Classes { listed, by }
    }

    /// Whether processes and control groups must be known.
    pub fn asks_for_owners(&self) -> bool {
        !matches!(self.by, By::Port(_)) || self.listed.iter().any(|(_, f)| f.asks_for_owners())
    }

    /// The class that a connection has by its control group alone, and that group's path: all that the class is.
    pub(super) fn group_of<'a>(&self, connection: &'a Connection) -> Option<(&'a str, &'a str)> {
        let found = match &self.by {
            By::Port(_) => None,
            By::Unit => connection.owner.unit_group(),
            By::Container => connection.owner.container_group(),
        }?;
        let subject = connection.subject();
        let listed = self.listed.iter().any(|(name, filter)| name == found.0 || filter.wants(&subject));
        (!listed).then_some(found)
    }

    /// The class of a connection.
    pub fn of<'a>(&'a self, connection: &'a Connection) -> Cow<'a, str> {
        let subject = connection.subject();
        if let Some((name, _)) = self.listed.iter().find(|(_, filter)| filter.wants(&subject)) {
            return Cow::Borrowed(name);
        }
        let name = match &self.by {
            By::Port(ports) => {
                let ends = [connection.local.port(), connection.remote.port()];
                return match ends.into_iter().find(|port| ports.contains(port)) {
                    Some(port) => Cow::Owned(format!("port {port}")),
                    None => Cow::Borrowed(OTHER),
                };
            }
            By::Unit => connection.owner.unit(),
            By::Container => connection.owner.container(),
        };
        Cow::Borrowed(name.unwrap_or(OTHER))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::Owner;
    use fullpipe_kernel::tcp_info::State;
    use fullpipe_units::Span;

    pub(crate) fn connection(local: &str, remote: &str, cgroup: Option<&str>) -> Connection {
        Connection {
            cookie: 1,
            local: local.parse().unwrap(),
            remote: remote.parse().unwrap(),
            state: State::Established,
            controller: Some("bbr".into()),
            watched: Span::ZERO,
            owner: Owner { process: None, cgroup: cgroup.map(Into::into) },
            sending: None,
            receiving: None,
            retransmitted: None,
            limits: Vec::new(),
            beliefs: None,
            figures: None,
        }
    }

    #[test]
    fn listed_classes_come_first_and_the_own_port_before_the_others() {
        let london = Filter::parse("dst 10.1.0.0/16").unwrap();
        let classes = Classes::new(vec![("london".to_owned(), london)], By::Port(vec![443, 22]));
        let of = |local, remote| classes.of(&connection(local, remote, None)).into_owned();
        assert_eq!(of("10.0.0.1:443", "10.1.2.3:50000"), "london");
        assert_eq!(of("10.0.0.1:443", "10.2.2.3:22"), "port 443");
        assert_eq!(of("10.0.0.1:50000", "10.2.2.3:22"), "port 22");
        assert_eq!(of("10.0.0.1:50000", "10.2.2.3:9999"), "other");
        assert!(!classes.asks_for_owners());
    }

    #[test]
    fn units_and_containers_are_classes_by_their_name() {
        let web = connection("10.0.0.1:443", "10.2.2.3:22", Some("/system.slice/nginx.service"));
        let units = Classes::new(Vec::new(), By::Unit);
        assert_eq!((units.of(&web).as_ref(), units.asks_for_owners()), ("nginx.service", true));
        assert_eq!(Classes::new(Vec::new(), By::Container).of(&web), "other");
    }
}
