//! Which connections are looked at: `host 192.0.2.7 and port 443`, in the words of tcpdump. One filter for files and for
//! interfaces, where the kernel leaves out what it does not match before it is copied.

use crate::wire::Segment;
use fullpipe_kernel::packets::filter::{Instruction, jump_if, jump_unless, op, statement};
use ipnet::IpNet;
use std::net::IpAddr;
use std::str::FromStr;
use thiserror::Error;

/// Bytes of each packet that are kept: all headers, and more of them than a packet of IPv6 with extensions has.
const KEPT: u32 = 320;

/// IP's number of it.
const TCP: u32 = 6;

/// Conditions of a filter at most: more would not fit the kernel's jumps.
const MOST: usize = 8;

/// A condition that packets in both directions meet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Condition {
    /// One of both addresses is in it.
    Net(IpNet),
    /// One of both ports is it.
    Port(u16),
}

/// Conditions all of which must be met; without one everything of TCP is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Filter(Vec<Condition>);

/// A filter that cannot be understood.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error(
    "the filter does not go on with `{at}`: it is made of `host ADDRESS`, `net PREFIX/LENGTH` and `port NUMBER`, joined by `and`, eight at most"
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
            if conditions.len() == MOST {
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

const LEAVE_OUT: Instruction = statement(op::RETURN, 0);
const KEEP: Instruction = statement(op::RETURN, KEPT);

impl Filter {
    /// Whether `s` belongs to a connection that is looked at.
    #[inline]
    pub fn matches(&self, s: &Segment) -> bool {
        self.0.iter().all(|condition| match condition {
            Condition::Net(net) => net.contains(&s.from.ip()) || net.contains(&s.to.ip()),
            Condition::Port(port) => s.from.port() == *port || s.to.port() == *port,
        })
    }

    /// The same for the kernel, of packets from their IP header on. Keeps more than [`Filter::matches`] where only reading
    /// tells: IPv6 with extension headers.
    pub(crate) fn program(&self) -> Vec<Instruction> {
        let four = self.version_4();
        let mut program = vec![
            statement(op::LOAD_BYTE, 0),
            statement(op::AND, 0xf0),
            jump_unless(op::IS_EQUAL, 0x40, four.len() as u8),
        ];
        program.extend(four);
        program.extend([jump_if(op::IS_EQUAL, 0x60, 1), LEAVE_OUT]);
        program.extend(self.version_6());
        program
    }

    fn version_4(&self) -> Vec<Instruction> {
        let mut code = vec![statement(op::LOAD_BYTE, 9), jump_if(op::IS_EQUAL, TCP, 1), LEAVE_OUT];
        if self.0.iter().any(|c| matches!(c, Condition::Port(_))) {
            // A fragment that is not the first has no ports.
            code.extend([statement(op::LOAD_HALF, 6), jump_unless(op::HAS_BITS, 0x1fff, 1), LEAVE_OUT]);
            code.push(statement(op::HEADER_LENGTH, 0));
        }
        for condition in &self.0 {
            match condition {
                Condition::Port(port) => code.extend(either_port(op::LOAD_HALF_BEYOND_HEADER, 0, *port)),
                Condition::Net(IpNet::V4(net)) => {
                    let words = [(u32::from(net.network()), u32::from(net.netmask()))];
                    code.extend(either_address([12, 16], &words));
                }
                Condition::Net(IpNet::V6(_)) => code.push(LEAVE_OUT),
            }
        }
        code.push(KEEP);
        code
    }

    fn version_6(&self) -> Vec<Instruction> {
        let mut code = vec![statement(op::LOAD_BYTE, 6)];
        // Extension headers: hop by hop, routing, fragment, authentication, destination.
        let extensions = [0, 43, 44, 51, 60];
        code.push(jump_if(op::IS_EQUAL, TCP, extensions.len() as u8 + 2));
        code.extend((0..5).map(|i| jump_if(op::IS_EQUAL, extensions[i as usize], 5 - i)));
        code.extend([LEAVE_OUT, KEEP]);
        for condition in &self.0 {
            match condition {
                Condition::Port(port) => code.extend(either_port(op::LOAD_HALF, 40, *port)),
                Condition::Net(IpNet::V6(net)) => {
                    let [address, mask] = [net.network(), net.netmask()].map(u128::from);
                    let word = |of: u128, i: u32| (of >> (96 - 32 * i)) as u32;
                    let words: Vec<(u32, u32)> = (0..4).map(|i| (word(address, i), word(mask, i))).collect();
                    code.extend(either_address([8, 24], &words));
                }
                Condition::Net(IpNet::V4(_)) => code.push(LEAVE_OUT),
            }
        }
        code.push(KEEP);
        code
    }
}

/// Goes on behind this if one of the two ports at `at` is `port`.
fn either_port(load: u16, at: u32, port: u16) -> [Instruction; 5] {
    let port = u32::from(port);
    [
        statement(load, at),
        jump_if(op::IS_EQUAL, port, 3),
        statement(load, at + 2),
        jump_if(op::IS_EQUAL, port, 1),
        LEAVE_OUT,
    ]
}

/// Goes on behind this if one of the two addresses that begin at `at` is in the net of these words and masks.
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
    code.push(LEAVE_OUT);
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel's interpreter would give for `packet` (only what these programs use).
    fn kept(program: &[Instruction], packet: &[u8]) -> u32 {
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
            // Beyond the packet's end the kernel gives up, and 0.
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

    /// A packet with that protocol from and to these ports.
    fn packet(ends: [&str; 2], protocol: u8, ports: [u16; 2]) -> Vec<u8> {
        let mut packet = match ends.map(|e| e.parse().unwrap()) {
            [IpAddr::V4(from), IpAddr::V4(to)] => {
                let head = [0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, protocol, 0, 0];
                [&head[..], &from.octets(), &to.octets()].concat()
            }
            [IpAddr::V6(from), IpAddr::V6(to)] => {
                [&[0x60, 0, 0, 0, 0, 20, protocol, 64][..], &from.octets(), &to.octets()].concat()
            }
            _ => panic!("of two versions"),
        };
        ports.iter().for_each(|p| packet.extend(p.to_be_bytes()));
        packet.resize(packet.len() + 16, 0);
        packet
    }

    #[test]
    fn the_kernel_leaves_out_what_the_reader_would() {
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
            assert_eq!(kept(&program, &four) > 0, in_four, "{filter}");
            assert_eq!(kept(&program, &six) > 0, in_six, "{filter}");
        }
    }

    #[test]
    fn other_protocols_and_later_fragments_are_left_out_and_extensions_are_read() {
        let program = "port 443".parse::<Filter>().unwrap().program();
        let ends = ["192.0.2.7", "198.51.100.9"];
        assert_eq!(kept(&program, &packet(ends, 17, [443, 443])), 0);
        let mut fragment = packet(ends, 6, [443, 443]);
        fragment[7] = 9;
        assert_eq!(kept(&program, &fragment), 0);
        let six = ["2001:db8::7", "2001:db8:1::9"];
        assert_eq!(kept(&program, &packet(six, 58, [443, 443])), 0);
        for extension in [0, 43, 44, 51, 60] {
            assert_eq!(kept(&program, &packet(six, extension, [0, 0])), KEPT);
        }
        // An ARP request.
        assert_eq!(kept(&program, &[0, 1, 8, 0, 6, 4, 0, 1, 2, 2, 2, 2, 2, 2]), 0);
    }

    #[test]
    fn what_is_no_filter_says_where() {
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
        let many = ["port 1"; MOST + 1].join(" and ");
        assert_eq!(many.parse::<Filter>().unwrap_err().at, "port 1");
    }
}
