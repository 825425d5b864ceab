//! Packet filters such as `host 192.0.2.7 and port 443`, in tcpdump's syntax. The same filter
//! applies to files and, as a BPF program in the kernel, to interfaces.

use crate::wire::Segment;
use fullpipe_kernel::packets::filter::{Instruction, jump_if, jump_unless, op, statement};
use ipnet::IpNet;
use std::net::IpAddr;
use std::str::FromStr;
use thiserror::Error;

/// Bytes captured of each packet: enough for all headers, IPv6 extensions included.
const SNAP_LENGTH: u32 = 320;

/// IP protocol number of TCP.
const TCP: u32 = 6;

/// Maximum number of conditions: more would exceed the jump offsets of BPF.
const MAX_CONDITIONS: usize = 8;

/// A condition on the packets of both directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Condition {
    /// The network of one of the addresses.
    Net(IpNet),
    /// One of the ports.
    Port(u16),
}

/// Conditions that all have to match. Without conditions, all TCP packets match.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter(Vec<Condition>);

/// A filter has a syntax error.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error(
    "syntax error in the filter at `{at}`: use `host ADDRESS`, `net PREFIX/LENGTH` and `port NUMBER`, \
     joined by `and`, at most eight"
)]
pub struct FilterError {
    at: String,
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        let mut words = text.split_whitespace().filter(|word| *word != "tcp").peekable();
        let mut conditions = Vec::new();
        while let Some(kind) = words.next() {
            let value = words.next().unwrap_or_default();
            let failure = || FilterError { at: format!("{kind} {value}").trim_end().to_owned() };
            if conditions.len() == MAX_CONDITIONS {
                return Err(failure());
            }
            conditions.push(match kind {
                "host" => Condition::Net(IpNet::from(value.parse::<IpAddr>().map_err(|_| failure())?)),
                "net" => Condition::Net(value.parse::<IpNet>().map_err(|_| failure())?.trunc()),
                "port" => Condition::Port(value.parse().map_err(|_| failure())?),
                _ => return Err(failure()),
            });
            match words.next() {
                None => break,
                Some("and") if words.peek().is_some() => {}
                Some(other) => return Err(FilterError { at: other.to_owned() }),
            }
        }
        Ok(Filter(conditions))
    }
}

const DROP: Instruction = statement(op::RETURN, 0);
const KEEP: Instruction = statement(op::RETURN, SNAP_LENGTH);

impl Filter {
    /// Whether a segment matches.
    #[inline]
    pub fn matches(&self, s: &Segment) -> bool {
        self.0.iter().all(|condition| match condition {
            Condition::Net(net) => net.contains(&s.from.ip()) || net.contains(&s.to.ip()),
            Condition::Port(port) => s.from.port() == *port || s.to.port() == *port,
        })
    }

    /// The filter as a BPF program for packets from the IP header on. It accepts all IPv6 packets
    /// with extension headers, which [`Filter::matches`] decides.
    pub(crate) fn program(&self) -> Vec<Instruction> {
        let four = self.ipv4_program();
        let mut program = vec![
            statement(op::LOAD_BYTE, 0),
            statement(op::AND, 0xf0),
            jump_unless(op::IS_EQUAL, 0x40, four.len() as u8),
        ];
        program.extend(four);
        program.extend([jump_if(op::IS_EQUAL, 0x60, 1), DROP]);
        program.extend(self.ipv6_program());
        program
    }

    fn ipv4_program(&self) -> Vec<Instruction> {
        let mut code = vec![statement(op::LOAD_BYTE, 9), jump_if(op::IS_EQUAL, TCP, 1), DROP];
        if self.0.iter().any(|c| matches!(c, Condition::Port(_))) {
            // Only the first fragment has ports: `matches` decides once the packet is reassembled.
            code.extend([statement(op::LOAD_HALF, 6), jump_unless(op::HAS_BITS, 0x1fff, 1), KEEP]);
            code.push(statement(op::HEADER_LENGTH, 0));
        }
        for condition in &self.0 {
            match condition {
                Condition::Port(port) => code.extend(either_port(op::LOAD_HALF_BEYOND_HEADER, 0, *port)),
                Condition::Net(IpNet::V4(net)) => {
                    let words = [(u32::from(net.network()), u32::from(net.netmask()))];
                    code.extend(either_address([12, 16], &words));
                }
                Condition::Net(IpNet::V6(_)) => code.push(DROP),
            }
        }
        code.push(KEEP);
        code
    }

    fn ipv6_program(&self) -> Vec<Instruction> {
        let mut code = vec![statement(op::LOAD_BYTE, 6)];
        // Extension headers: hop by hop, routing, fragment, authentication, destination.
        let extensions = [0, 43, 44, 51, 60];
        code.push(jump_if(op::IS_EQUAL, TCP, extensions.len() as u8 + 2));
        code.extend((0..5).map(|i| jump_if(op::IS_EQUAL, extensions[i as usize], 5 - i)));
        code.extend([DROP, KEEP]);
        for condition in &self.0 {
            match condition {
                Condition::Port(port) => code.extend(either_port(op::LOAD_HALF, 40, *port)),
                Condition::Net(IpNet::V6(net)) => {
                    let [address, mask] = [net.network(), net.netmask()].map(u128::from);
                    let word = |of: u128, i: u32| (of >> (96 - 32 * i)) as u32;
                    let words: Vec<(u32, u32)> = (0..4).map(|i| (word(address, i), word(mask, i))).collect();
                    code.extend(either_address([8, 24], &words));
                }
                Condition::Net(IpNet::V4(_)) => code.push(DROP),
            }
        }
        code.push(KEEP);
        code
    }
}

/// Continues after these instructions if one of the two ports at `at` is `port`.
fn either_port(load: u16, at: u32, port: u16) -> [Instruction; 5] {
    let port = u32::from(port);
    [
        statement(load, at),
        jump_if(op::IS_EQUAL, port, 3),
        statement(load, at + 2),
        jump_if(op::IS_EQUAL, port, 1),
        DROP,
    ]
}

/// Continues after these instructions if one of the two addresses at `at` is in the network of
/// these words and masks.
fn either_address(at: [u32; 2], words: &[(u32, u32)]) -> Vec<Instruction> {
    let compared: Vec<(u32, &(u32, u32))> = (0..).zip(words).filter(|(_, (_, mask))| *mask != 0).collect();
    let length = compared.len() as u8 * 3 + 1;
    let mut code = Vec::new();
    for (from, beyond) in at.into_iter().zip([u32::from(length) + 1, 1]) {
        for (n, (i, (word, mask))) in (1..).zip(&compared) {
            code.extend([statement(op::LOAD_WORD, from + 4 * i), statement(op::AND, *mask)]);
            code.push(jump_unless(op::IS_EQUAL, *word, length - 3 * n));
        }
        code.push(statement(op::JUMP, beyond));
    }
    code.push(DROP);
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Interprets a program as the kernel does; returns the accepted length.
    fn accepted(program: &[Instruction], packet: &[u8]) -> u32 {
        let (mut a, mut x, mut i) = (0_u32, 0_u32, 0);
        let load = |at: u32, n: usize| {
            let bytes = packet.get(at as usize..at as usize + n)?;
            Some(bytes.iter().fold(0, |v, b| v << 8 | u32::from(*b)))
        };
        loop {
            let Instruction { code, if_true, if_false, k } = program[i];
            i += 1;
            let loaded = match code {
                op::LOAD_WORD => load(k, 4),
                op::LOAD_HALF => load(k, 2),
                op::LOAD_BYTE => load(k, 1),
                op::LOAD_HALF_BEYOND_HEADER => load(x + k, 2),
                op::RETURN => return k,
                _ => Some(a),
            };
            // The kernel returns 0 for loads beyond the packet.
            let Some(loaded) = loaded else { return 0 };
            a = loaded;
            match code {
                op::HEADER_LENGTH => x = 4 * u32::from(packet[k as usize] & 0xf),
                op::AND => a &= k,
                op::JUMP => i += k as usize,
                op::IS_EQUAL => i += usize::from(if a == k { if_true } else { if_false }),
                op::HAS_BITS => i += usize::from(if a & k != 0 { if_true } else { if_false }),
                _ => {}
            }
        }
    }

    /// A packet of a protocol between two addresses and ports.
    fn packet(ends: [&str; 2], protocol: u8, ports: [u16; 2]) -> Vec<u8> {
        let mut packet = match ends.map(|e| e.parse().unwrap()) {
            [IpAddr::V4(from), IpAddr::V4(to)] => {
                let head = [0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, protocol, 0, 0];
                [&head[..], &from.octets(), &to.octets()].concat()
            }
            [IpAddr::V6(from), IpAddr::V6(to)] => {
                [&[0x60, 0, 0, 0, 0, 20, protocol, 64][..], &from.octets(), &to.octets()].concat()
            }
            _ => panic!("mixed IP versions"),
        };
        ports.iter().for_each(|p| packet.extend(p.to_be_bytes()));
        packet.resize(packet.len() + 16, 0);
        packet
    }

    #[test]
    fn kernel_and_reader_filter_alike() {
        let four = packet(["192.0.2.7", "198.51.100.9"], 6, [50_000, 443]);
        let six = packet(["2001:db8::7", "2001:db8:1::9"], 6, [443, 50_000]);
        for (filter, in_four, in_six) in [
            ("", true, true),
            ("tcp", true, true),
            ("port 443", true, true),
            ("port 50000", true, true),
            ("port 80", false, false),
            ("host 192.0.2.7", true, false),
            ("host 198.51.100.9 and port 443", true, false),
            ("host 192.0.2.8", false, false),
            ("net 198.51.100.0/24 and net 192.0.0.0/8", true, false),
            ("net 0.0.0.0/0", true, false),
            ("host 2001:db8:1::9 and port 443", false, true),
            ("net 2001:db8::/33", false, true),
            ("net 2001:db8:8000::/33", false, false),
        ] {
            let program = filter.parse::<Filter>().unwrap().program();
            assert_eq!(accepted(&program, &four) > 0, in_four, "{filter}");
            assert_eq!(accepted(&program, &six) > 0, in_six, "{filter}");
        }
    }

    #[test]
    fn other_protocols_are_dropped_and_later_fragments_and_extensions_accepted() {
        let program = "port 443".parse::<Filter>().unwrap().program();
        let ends = ["192.0.2.7", "198.51.100.9"];
        assert_eq!(accepted(&program, &packet(ends, 17, [443, 443])), 0);
        let mut fragment = packet(ends, 6, [443, 443]);
        fragment[7] = 9;
        assert_eq!(accepted(&program, &fragment), SNAP_LENGTH);
        let six = ["2001:db8::7", "2001:db8:1::9"];
        assert_eq!(accepted(&program, &packet(six, 58, [443, 443])), 0);
        for extension in [0, 43, 44, 51, 60] {
            assert_eq!(accepted(&program, &packet(six, extension, [0, 0])), SNAP_LENGTH);
        }
        // An ARP request.
        assert_eq!(accepted(&program, &[0, 1, 8, 0, 6, 4, 0, 1, 2, 2, 2, 2, 2, 2]), 0);
    }

    #[test]
    fn syntax_errors_name_the_position() {
        for (text, at) in [
            ("port http", "port http"),
            ("host", "host"),
            ("port 80 or port 443", "or"),
            ("and port 80", "and port"),
            ("port 80 and", "and"),
            ("net 10.0.0.0", "net 10.0.0.0"),
            ("src port 80", "src port"),
        ] {
            let error = text.parse::<Filter>().unwrap_err();
            assert_eq!(error.at, at, "{text}");
        }
        let many = ["port 1"; MAX_CONDITIONS + 1].join(" and ");
        assert_eq!(many.parse::<Filter>().unwrap_err().at, "port 1");
    }
}
