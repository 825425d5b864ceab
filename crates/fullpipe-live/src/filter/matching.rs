//! Evaluation of filters.

use super::{End, Expression, Operator, Subject};

impl Expression {
    pub(super) fn evaluate(&self, subject: &Subject<'_>) -> bool {
        let end = |end: &End| if *end == End::Local { subject.local } else { subject.remote };
        match self {
            Expression::All(all) => all.iter().all(|e| e.evaluate(subject)),
            Expression::Any(any) => any.iter().any(|e| e.evaluate(subject)),
            Expression::Not(inner) => !inner.evaluate(subject),
            Expression::Host { end: which, net, port } => {
                let end = end(which);
                net.is_none_or(|net| net.contains(&end.ip().to_canonical()))
                    && port.is_none_or(|port| port == end.port())
            }
            Expression::Port { end: which, operator, port } => {
                let actual = end(which).port();
                match operator {
                    Operator::Equal => actual == *port,
                    Operator::NotEqual => actual != *port,
                    Operator::Greater => actual > *port,
                    Operator::Less => actual < *port,
                    Operator::AtLeast => actual >= *port,
                    Operator::AtMost => actual <= *port,
                }
            }
            Expression::State(state) => subject.state == *state,
            Expression::Controller(name) => subject.controller == Some(name),
            Expression::Process(name) => subject.owner.process.as_ref().is_some_and(|p| p.name == *name),
            Expression::Pid(pid) => subject.owner.process.as_ref().is_some_and(|p| p.pid == *pid),
            Expression::Cgroup(path) => {
                let path = path.trim_end_matches('/');
                let rest = subject.owner.cgroup.as_deref().and_then(|c| c.strip_prefix(path));
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
            Expression::Unit(name) => subject.owner.unit().is_some_and(|unit| {
                unit == name || unit.rsplit_once('.').is_some_and(|(stem, _)| stem == name)
            }),
        }
    }

    pub(super) fn needs_state(&self) -> bool {
        match self {
            Expression::All(several) | Expression::Any(several) => several.iter().any(Self::needs_state),
            Expression::Not(inner) => inner.needs_state(),
            Expression::State(_) => true,
            _ => false,
        }
    }

    pub(super) fn needs_owners(&self) -> bool {
        match self {
            Expression::All(several) | Expression::Any(several) => several.iter().any(Self::needs_owners),
            Expression::Not(inner) => inner.needs_owners(),
            Expression::Process(_) | Expression::Pid(_) | Expression::Cgroup(_) | Expression::Unit(_) => true,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::filter::{Filter, Subject};
    use crate::owner::{Owner, Process};
    use fullpipe_kernel::tcp_info::State;
    use proptest::prelude::*;

    fn matches(filter: &str) -> bool {
        let owner = Owner {
            process: Some(Process { pid: 42, name: "nginx: worker".to_owned() }.into()),
            cgroup: Some("/system.slice/nginx.service".into()),
        };
        let subject = Subject {
            local: "10.1.2.3:443".parse().unwrap(),
            remote: "[2001:db8::7]:50000".parse().unwrap(),
            state: State::Established,
            controller: Some("bbr"),
            owner: &owner,
        };
        Filter::parse(filter).unwrap_or_else(|e| panic!("{e}")).matches(&subject)
    }

    #[test]
    fn filters_of_ss_are_accepted() {
        for filter in [
            "",
            "sport = :443",
            "sport :443",
            "( sport = :https or sport = :http )",
            "src 10.0.0.0/8",
            "src = 10.1.2.3:443",
            "src *:443",
            "dst [2001:db8::]/32:50000",
            "dst [2001:db8::/32]:50000",
            "dst 2001:db8::7",
            "dport >= 50000 and dport le :50000",
            "dport gt 1024 sport lt 1024",
            "! dst 192.0.2.0/24 & state established",
            "state ESTABLISHED && not ( sport == 80 || sport == 8080 )",
            "dst ::/0",
            "src 0.0.0.0/0",
        ] {
            assert!(matches(filter), "{filter}");
        }
        for filter in
            ["sport != :443", "dst 10.0.0.0/8", "not src 10.0.0.0/8", "dport < 50000", "state close-wait"]
        {
            assert!(!matches(filter), "{filter}");
        }
    }

    #[test]
    fn controllers_processes_and_units_are_matched() {
        for filter in [
            "cc = bbr",
            "controller bbr",
            "cc != cubic",
            "process 'nginx: worker'",
            "pid = 42",
            "cgroup /system.slice",
            "cgroup /system.slice/nginx.service/",
            "cgroup /",
            "unit nginx.service and unit nginx",
        ] {
            assert!(matches(filter), "{filter}");
        }
        for filter in ["cc cubic", "process nginx", "cgroup /system", "unit ngin", "unit != nginx", "pid 43"]
        {
            assert!(!matches(filter), "{filter}");
        }
        assert!(Filter::parse("not (cc bbr or unit x)").unwrap().needs_owners());
        assert!(!Filter::parse("not (cc bbr or dport = 5)").unwrap().needs_owners());
        assert!(Filter::parse("cc bbr and not (state close-wait or unit x)").unwrap().needs_state());
        assert!(!Filter::parse("cc bbr and not unit x").unwrap().needs_state());
    }

    #[test]
    fn errors_point_at_the_offending_token() {
        for (filter, marks, expected) in [
            ("dprt = :443", "^^^^", "known conditions: dst"),
            ("dport = :99999", "        ^^^^^^", "65535"),
            ("dport = ", "       ^", "for example: dport = :443"),
            ("dst example.org", "    ^^^^^^^^^^^", "host names are not resolved"),
            ("dst 10.0.0.0/33", "    ^^^^^^^^^^^", "between 0 and 32"),
            ("( cc bbr", "        ^", "closing bracket"),
            ("cc bbr )", "       ^", "unmatched"),
            ("src > 10.0.0.1", "    ^", "only ports"),
            ("state open", "      ^^^^", "established"),
            ("pid nginx", "    ^^^^^", "process NAME"),
        ] {
            let text = Filter::parse(filter).unwrap_err().to_string();
            assert_eq!(text.lines().nth(2).unwrap().strip_prefix("  ").unwrap(), marks, "{text}");
            assert!(text.contains(expected), "{text}");
        }
        let nested = "(".repeat(100_000);
        assert!(Filter::parse(&nested).unwrap_err().to_string().contains("nested"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "([a-z]{2,6}|[ ()!&|=<>:/'\"\\[\\]*.0-9]|dport|dst|not |cc |\\PC){0,24}") {
            if let Err(e) = Filter::parse(&text) {
                prop_assert!(e.to_string().lines().count() >= 3, "{}", e);
            }
        }
    }
}
