//! What of a filter can be decided as a connection opens, by who sees its two ends and nothing else: in postfix order, for
//! those who have no tree.

use super::{End, Expression, Filter, Operator};
use fullpipe_kernel::tcp_info::State;
use ipnet::IpNet;
use std::ops::RangeInclusive;

/// A step of a condition in postfix order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Opening {
    /// Whether an end, this host's or the remote one, has an address in a network and a port in a range.
    Test {
        /// Whether it is the remote end.
        remote: bool,
        /// None: any address.
        net: Option<IpNet>,
        /// All of them where none is asked for.
        ports: RangeInclusive<u16>,
    },
    /// Both of the last two.
    And,
    /// One of the last two at least.
    Or,
    /// Not the last one.
    Not,
}

const ANY: RangeInclusive<u16> = 0..=u16::MAX;

impl Filter {
    /// The condition as it can be decided when a connection opens; nothing where everything is wanted.
    ///
    /// # Errors
    /// When it asks for what is not known then: with that and what to ask for instead.
    pub fn at_opening(&self) -> Result<Vec<Opening>, String> {
        let mut steps = Vec::new();
        if self.0 != Expression::All(Vec::new()) {
            self.0.opening(&mut steps)?;
        }
        Ok(steps)
    }
}

fn constant(holds: bool, steps: &mut Vec<Opening>) {
    steps.push(Opening::Test { remote: false, net: None, ports: ANY });
    if !holds {
        steps.push(Opening::Not);
    }
}

impl Expression {
    fn opening(&self, steps: &mut Vec<Opening>) -> Result<(), String> {
        let unknown = |what: &str, instead: &str| {
            Err(format!(
                "{what} is not known when a connection opens: the ports and addresses of its ends are; {instead}"
            ))
        };
        let mut several = |all: &[Expression], join: Opening| {
            if all.is_empty() {
                constant(join == Opening::And, steps);
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
            Expression::All(all) => return several(all, Opening::And),
            Expression::Any(any) => return several(any, Opening::Or),
            Expression::Not(inner) => {
                inner.opening(steps)?;
                steps.push(Opening::Not);
            }
            Expression::Host { end, net, port } => steps.push(Opening::Test {
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
                        steps.push(Opening::Test { remote: *end == End::Remote, net: None, ports })
                    }
                    None => constant(false, steps),
                }
                if *operator == Operator::NotEqual {
                    steps.push(Opening::Not);
                }
            }
            Expression::State(state) => constant(*state == State::Established, steps),
            Expression::Controller(_) => {
                return unknown("the controller", "what a program or a route chose is left alone anyway");
            }
            Expression::Process(_) | Expression::Pid(_) => {
                return unknown("the process", "--unit and --cgroup choose whose connections");
            }
            Expression::Cgroup(_) => return unknown("the control group", "--cgroup chooses it"),
            Expression::Unit(_) => return unknown("the unit", "--unit chooses it"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_put_in_postfix_order() {
        let steps = Filter::parse("sport = :443 and not dst 10.0.0.0/8").unwrap().at_opening().unwrap();
        assert_eq!(
            steps,
            [
                Opening::Test { remote: false, net: None, ports: 443..=443 },
                Opening::Test { remote: true, net: Some("10.0.0.0/8".parse().unwrap()), ports: ANY },
                Opening::Not,
                Opening::And,
            ]
        );
        assert_eq!(Filter::everything().at_opening(), Ok(vec![]));
    }

    #[test]
    fn what_is_not_known_at_the_opening_is_told() {
        for (filter, said) in [
            ("cc bbr", "controller"),
            ("pid 7", "--unit"),
            ("unit nginx", "--unit"),
            ("not cgroup /", "--cgroup"),
        ] {
            let text = format!("sport = :443 and {filter}");
            let told = Filter::parse(&text).unwrap().at_opening().unwrap_err();
            assert!(told.contains(said) && told.contains("ports and addresses"), "{told}");
        }
    }
}
