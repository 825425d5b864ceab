//! Selects the connections a split divides, by what is known when a connection opens.

use super::End;
use crate::error::{Error, Result};
use bytemuck::{Pod, Zeroable};
use ipnet::{IpNet, Ipv6Net};
use std::net::SocketAddr;
use std::ops::RangeInclusive;

/// `FP_SPLIT_STEPS`.
const MAX_STEPS: usize = 24;
/// Limit of the evaluation stack.
const MAX_DEPTH: usize = 63;

const TEST: u8 = 1;
const AND: u8 = 2;
const OR: u8 = 3;
const NOT: u8 = 4;

/// `struct fp_split_step`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pod, Zeroable)]
pub(crate) struct Step {
    value: [u64; 2],
    mask: [u64; 2],
    low: u16,
    high: u16,
    kind: u8,
    remote: u8,
    family: u8,
    spare: u8,
}

/// A condition, built in postfix order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionFilter {
    steps: [Step; MAX_STEPS],
    used: usize,
    depth: usize,
}

impl Default for ConnectionFilter {
    /// Matches every connection.
    fn default() -> Self {
        ConnectionFilter { steps: [Step::zeroed(); MAX_STEPS], used: 0, depth: 0 }
    }
}

impl ConnectionFilter {
    fn push(&mut self, step: Step) -> Result<()> {
        let slot = self.steps.get_mut(self.used).filter(|_| self.depth < MAX_DEPTH).ok_or_else(|| {
            Error::Malformed(format!(
                "the condition needs more than the {MAX_STEPS} steps allowed per connection: shorten \
                 it, or use --port"
            ))
        })?;
        *slot = step;
        self.used += 1;
        Ok(())
    }

    /// Tests whether the local or remote endpoint has an address in `net` and a port in `ports`.
    /// IPv4-mapped addresses (`::ffff:192.0.2.1`) count as IPv4.
    ///
    /// # Errors
    /// If the condition is too long.
    pub fn test(&mut self, remote: bool, net: Option<IpNet>, ports: RangeInclusive<u16>) -> Result<()> {
        let (family, net) = match net {
            None => (0, Ipv6Net::default()),
            Some(IpNet::V4(net)) => {
                (4, Ipv6Net::new_assert(net.addr().to_ipv6_mapped(), 96 + net.prefix_len()))
            }
            Some(IpNet::V6(net)) => (6, net),
        };
        let (value, mask): ([u64; 2], [u64; 2]) =
            (bytemuck::cast(net.network().octets()), bytemuck::cast(net.netmask().octets()));
        let (low, high) = ports.into_inner();
        let step = Step { value, mask, low, high, kind: TEST, remote: remote.into(), family, spare: 0 };
        self.push(step)?;
        self.depth += 1;
        Ok(())
    }

    fn join(&mut self, kind: u8) -> Result<()> {
        self.depth = self.depth.saturating_sub(1);
        self.push(Step { kind, ..Step::zeroed() })
    }

    /// Combines the last two conditions with AND.
    ///
    /// # Errors
    /// If the condition is too long.
    pub fn and(&mut self) -> Result<()> {
        self.join(AND)
    }

    /// Combines the last two conditions with OR.
    ///
    /// # Errors
    /// If the condition is too long.
    pub fn or(&mut self) -> Result<()> {
        self.join(OR)
    }

    /// Negates the last condition.
    ///
    /// # Errors
    /// If the condition is too long.
    pub fn not(&mut self) -> Result<()> {
        self.push(Step { kind: NOT, ..Step::zeroed() })
    }

    pub(super) fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.steps)
    }

    /// Whether a connection matches, evaluated by the same C code as in the kernel.
    pub fn matches(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        let (local, remote) = (End::from(local), End::from(remote));
        // SAFETY: all are alive, and the steps as many as the C side reads (a test compares their size).
        unsafe { fp_native_split_is_asked_for(self.steps.as_ptr(), &raw const local, &raw const remote) != 0 }
    }
}

unsafe extern "C" {
    fn fp_native_split_is_asked_for(steps: *const Step, local: *const End, remote: *const End) -> u32;
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullpipe_kernel::tcp_info::State;
    use fullpipe_live::Owner;
    use fullpipe_live::filter::{Filter, OpeningStep, Subject};
    use proptest::prelude::*;
    use std::net::IpAddr;

    fn build(filter: &Filter) -> Result<ConnectionFilter> {
        let mut only = ConnectionFilter::default();
        for step in filter.opening_steps().unwrap() {
            match step {
                OpeningStep::Test { remote, net, ports } => only.test(remote, net, ports),
                OpeningStep::And => only.and(),
                OpeningStep::Or => only.or(),
                OpeningStep::Not => only.not(),
            }?;
        }
        Ok(only)
    }

    #[test]
    fn overlong_condition_is_rejected() {
        let long = |n: u16| (0..n).map(|port| format!("sport = {port}")).collect::<Vec<_>>().join(" or ");
        assert!(build(&long(12).parse().unwrap()).is_ok());
        let error = build(&long(13).parse().unwrap()).unwrap_err();
        assert!(error.to_string().contains("24 steps"), "{error}");
        assert!(
            ConnectionFilter::default()
                .matches("192.0.2.1:1".parse().unwrap(), "192.0.2.2:2".parse().unwrap())
        );
    }

    fn condition() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            ("(sport|dport)", "(=|!=|<|>|<=|>=)", 0u16..4)
                .prop_map(|(end, is, port)| format!("{end} {is} {port}")),
            ("(sport|dport)", "(=|!=|<|>|<=|>=)").prop_map(|(end, is)| format!("{end} {is} 65535")),
            ("(src|dst)", "(=|!=)", 0u8..4, 28u8..=32)
                .prop_map(|(end, is, ip, l)| format!("{end} {is} 10.0.0.{ip}/{l}")),
            ("(src|dst)", 0u8..4, 92u8..=128)
                .prop_map(|(end, ip, l)| format!("{end} [::ffff:10.0.0.{ip}]/{l}:2")),
            ("(src|dst)", 0u8..4, 0u8..=128).prop_map(|(end, ip, l)| format!("{end} [2001:db8::{ip}]/{l}")),
            "state (established|close-wait)",
            Just("src *:1".to_owned()),
        ];
        leaf.prop_recursive(3, 9, 3, |inner| {
            prop_oneof![
                (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("( {a} and {b} )")),
                (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("( {a} or {b} )")),
                inner.prop_map(|a| format!("not ( {a} )")),
            ]
        })
    }

    fn end() -> impl Strategy<Value = SocketAddr> {
        let ip = prop_oneof![
            (0u8..4).prop_map(|n| IpAddr::from([10, 0, 0, n])),
            (0u16..4).prop_map(|n| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, n])),
        ];
        (ip, prop_oneof![0u16..5, Just(65535)]).prop_map(|(ip, port)| SocketAddr::new(ip, port))
    }

    proptest! {
        #[test]
        fn kernel_code_agrees_with_the_filter(text in condition(), local in end(), remote in end()) {
            let filter: Filter = text.parse().unwrap();
            if let Ok(only) = build(&filter) {
                let owner = Owner::default();
                let state = State::Established;
                let subject = Subject { local, remote, state, controller: None, owner: &owner };
                prop_assert_eq!(
                    only.matches(local, remote),
                    filter.matches(&subject),
                    "{} {} {}",
                    text,
                    local,
                    remote
                );
            }
        }
    }
}
