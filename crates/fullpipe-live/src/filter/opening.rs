//! The part of a filter that can be evaluated when a connection opens, from its two addresses and
//! ports only: in postfix order, for evaluation by a program in the kernel.

use super::{End, Expression, Filter, Operator};
use fullpipe_kernel::tcp_info::State;
use ipnet::IpNet;
use std::ops::RangeInclusive;

/// A step of a condition in postfix order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OpeningStep {
    /// Whether the local or remote endpoint has an address in a network and a port in a range.
    Test {
        /// Whether the remote endpoint is tested.
        remote: bool,
        /// The network; `None` for any address.
        net: Option<IpNet>,
        /// The ports; all if the filter names none.
        ports: RangeInclusive<u16>,
    },
    /// Conjunction of the last two results.
    And,
    /// Disjunction of the last two results.
    Or,
    /// Negation of the last result.
    Not,
}

const ANY: RangeInclusive<u16> = 0..=u16::MAX;

impl Filter {
    /// The condition for a connection that opens; empty if every connection matches.
    ///
    /// # Errors
    /// When the filter uses a property that is not yet known then. The message names it and an
    /// alternative.
    pub fn opening_steps(&self) -> Result<Vec<OpeningStep>, String> {
        let mut steps = Vec::new();
        if self.0 != Expression::All(Vec::new()) {
            self.0.opening(&mut steps)?;
        }
        Ok(steps)
    }
}

fn constant(holds: bool, steps: &mut Vec<OpeningStep>) {
    steps.push(OpeningStep::Test { remote: false, net: None, ports: ANY });
    if !holds {
        steps.push(OpeningStep::Not);
    }
}

impl Expression {
    fn opening(&self, steps: &mut Vec<OpeningStep>) -> Result<(), String> {
        let unknown = |property: &str, alternative: &str| {
            Err(format!(
                "{property} is not known when a connection opens, only its addresses and ports are; \
                 {alternative}"
            ))
        };
        let mut several = |all: &[Expression], join: OpeningStep| {
            if all.is_empty() {
                constant(join == OpeningStep::And, steps);
            }
            for (place, one) in all.iter().enumerate() {
                one.opening(steps)?;
                if place > 0 {
                    steps.push(join.clone());
                }
            }
            Ok(())
        };
        match self {
            Expression::All(all) => return several(all, OpeningStep::And),
            Expression::Any(any) => return several(any, OpeningStep::Or),
            Expression::Not(inner) => {
                inner.opening(steps)?;
                steps.push(OpeningStep::Not);
            }
            Expression::Host { end, net, port } => steps.push(OpeningStep::Test {
                remote: *end == End::Remote,
                net: *net,
                ports: port.map_or(ANY, |port| port..=port),
            }),
            Expression::Port { end, operator, port } => {
                let ports = match operator {
                    Operator::Equal | Operator::NotEqual => Some(*port..=*port),
                    Operator::AtLeast => Some(*port..=u16::MAX),
                    Operator::AtMost => Some(0..=*port),
                    Operator::Greater => port.checked_add(1).map(|low| low..=u16::MAX),
                    Operator::Less => port.checked_sub(1).map(|high| 0..=high),
                };
                match ports {
                    Some(ports) => {
                        steps.push(OpeningStep::Test { remote: *end == End::Remote, net: None, ports })
                    }
                    None => constant(false, steps),
                }
                if *operator == Operator::NotEqual {
                    steps.push(OpeningStep::Not);
                }
            }
            Expression::State(state) => constant(*state == State::Established, steps),
            Expression::Controller(_) => {
                return unknown(
                    "the controller",
                    "connections with a controller chosen by the program or the route are left alone",
                );
            }
            Expression::Process(_) | Expression::Pid(_) => {
                return unknown("the process", "use --unit or --cgroup");
            }
            Expression::Cgroup(_) => return unknown("the control group", "use --cgroup"),
            Expression::Unit(_) => return unknown("the unit", "use --unit"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opening_steps_are_in_postfix_order() {
        let steps = Filter::parse("sport = :443 and not dst 10.0.0.0/8").unwrap().opening_steps().unwrap();
        assert_eq!(
            steps,
            [
                OpeningStep::Test { remote: false, net: None, ports: 443..=443 },
                OpeningStep::Test { remote: true, net: Some("10.0.0.0/8".parse().unwrap()), ports: ANY },
                OpeningStep::Not,
                OpeningStep::And,
            ]
        );
        assert_eq!(Filter::everything().opening_steps(), Ok(vec![]));
    }

    #[test]
    fn properties_unknown_at_opening_are_refused_with_an_alternative() {
        for (filter, expected) in [
            ("cc bbr", "controller"),
            ("pid 7", "--unit"),
            ("unit nginx", "--unit"),
            ("not cgroup /", "--cgroup"),
        ] {
            let text = format!("sport = :443 and {filter}");
            let error = Filter::parse(&text).unwrap().opening_steps().unwrap_err();
            assert!(error.contains(expected) && error.contains("addresses and ports"), "{error}");
        }
    }
}
