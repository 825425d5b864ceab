//! Classes of connections, which bound the number of series whatever the number of connections.

use crate::connection::Connection;
use crate::filter::Filter;
use std::borrow::Cow;

/// Class of connections without a class of their own.
pub(crate) const OTHER: &str = "other";

/// How connections outside the listed classes are grouped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GroupBy {
    /// By these ports: the local port if listed, otherwise the remote one.
    Port(Vec<u16>),
    /// By systemd unit; all units of a user are one class.
    Unit,
    /// By container; all containers of a user are one class.
    Container,
}

/// Assigns connections to classes.
#[derive(Clone, PartialEq, Debug)]
pub struct Classes {
    listed: Vec<(String, Filter)>,
    by: GroupBy,
}

impl Classes {
    /// A connection belongs to the first class of `listed` whose filter matches; otherwise it is
    /// grouped `by` the rule.
    pub fn new(listed: Vec<(String, Filter)>, by: GroupBy) -> Classes {
        Classes { listed, by }
    }

    /// Whether classification needs processes and control groups.
    pub fn needs_owners(&self) -> bool {
        !matches!(self.by, GroupBy::Port(_)) || self.listed.iter().any(|(_, f)| f.needs_owners())
    }

    /// The class that a connection gets from its control group alone, and the path of that group.
    pub(super) fn group_of<'a>(&self, connection: &'a Connection) -> Option<(&'a str, &'a str)> {
        let found = match &self.by {
            GroupBy::Port(_) => None,
            GroupBy::Unit => connection.owner.class_unit(),
            GroupBy::Container => connection.owner.class_container(),
        }?;
        let subject = connection.subject();
        let listed = self.listed.iter().any(|(name, filter)| name == found.0 || filter.matches(&subject));
        (!listed).then_some(found)
    }

    /// The class of a connection.
    pub fn classify<'a>(&'a self, connection: &'a Connection) -> Cow<'a, str> {
        let subject = connection.subject();
        if let Some((name, _)) = self.listed.iter().find(|(_, filter)| filter.matches(&subject)) {
            return Cow::Borrowed(name);
        }
        let name = match &self.by {
            GroupBy::Port(ports) => {
                let ends = [connection.local.port(), connection.remote.port()];
                return match ends.into_iter().find(|port| ports.contains(port)) {
                    Some(port) => Cow::Owned(format!("port {port}")),
                    None => Cow::Borrowed(OTHER),
                };
            }
            GroupBy::Unit => connection.owner.class_unit(),
            GroupBy::Container => connection.owner.class_container(),
        };
        Cow::Borrowed(name.map_or(OTHER, |(name, _)| name))
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
            model: None,
            figures: None,
        }
    }

    #[test]
    fn listed_classes_precede_ports_and_local_port_precedes_remote() {
        let london = Filter::parse("dst 10.1.0.0/16").unwrap();
        let classes = Classes::new(vec![("london".to_owned(), london)], GroupBy::Port(vec![443, 22]));
        let of = |local, remote| classes.classify(&connection(local, remote, None)).into_owned();
        assert_eq!(of("10.0.0.1:443", "10.1.2.3:50000"), "london");
        assert_eq!(of("10.0.0.1:443", "10.2.2.3:22"), "port 443");
        assert_eq!(of("10.0.0.1:50000", "10.2.2.3:22"), "port 22");
        assert_eq!(of("10.0.0.1:50000", "10.2.2.3:9999"), "other");
        assert!(!classes.needs_owners());
    }

    #[test]
    fn units_and_containers_are_classes() {
        let web = connection("10.0.0.1:443", "10.2.2.3:22", Some("/system.slice/nginx.service"));
        let units = Classes::new(Vec::new(), GroupBy::Unit);
        assert_eq!((units.classify(&web).as_ref(), units.needs_owners()), ("nginx.service", true));
        assert_eq!(Classes::new(Vec::new(), GroupBy::Container).classify(&web), "other");
    }
}
