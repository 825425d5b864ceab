//! What members say to each other once they know each other, and what is asked of a store.

use crate::record::{Measured, Minute, Outcome, Pair, Route, RttBand, Transfer, Trouble};
use crate::wire::{Malformed, Reader, Writer};
use fullpipe_units::{Rate, Span};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A message of a session.
#[derive(Clone, PartialEq, Debug)]
pub enum Message {
    /// The caller's first, which is its proof.
    Ready,
    /// Is the other end alive?
    Ping(u64),
    /// It is.
    Pong(u64),
    /// The caller would send a transfer now.
    Offer {
        /// Payload, bytes.
        bytes: u64,
        /// It will be given up after so many milliseconds.
        limit_ms: u32,
    },
    /// It may: exactly its bytes follow.
    Go,
    /// Not now: another transfer is under way.
    Busy,
    /// Not today: the called's budget is spent.
    Spent,
    /// All bytes of the transfer have arrived.
    Arrived {
        /// How many.
        bytes: u64,
    },
    /// Whose records there are to be had.
    Stored {
        /// The store's own number: ids mean nothing in another.
        store: u64,
        /// Sites by the numbers in its records.
        sites: Vec<String>,
        /// Controllers by the numbers in its records.
        controllers: Vec<String>,
    },
    /// Asks for records after one's id.
    Ask {
        /// Of which table.
        table: Table,
        /// The id.
        after: u64,
    },
    /// Records with their ids, in order; none if there are no more.
    Rows(Vec<(u64, Row)>),
    /// That was all.
    End,
}

/// What is stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Table {
    /// Transfers.
    Transfers,
    /// Minutes of small probes.
    Minutes,
    /// Routes.
    Routes,
}

impl Table {
    /// All of them.
    pub const ALL: [Table; 3] = [Table::Transfers, Table::Minutes, Table::Routes];
}

/// A record of one of the tables.
#[derive(Clone, PartialEq, Debug)]
pub enum Row {
    /// A transfer.
    Transfer(Transfer),
    /// A minute.
    Minute(Minute),
    /// A route.
    Route(Route),
}

/// Bytes of rows in a message, so that it fits a frame.
pub const ROWS_BYTES: usize = 48 << 10;
/// Hops of a route.
pub const MOST_HOPS: usize = 64;

/// Troubles by their number in stores and messages, which stays theirs.
pub(crate) const TROUBLES: [Trouble; 12] = [
    Trouble::Unreachable,
    Trouble::Refused,
    Trouble::NotAMember,
    Trouble::Version,
    Trouble::LargePacketsVanish,
    Trouble::Stalled,
    Trouble::TooSlow,
    Trouble::Broken,
    Trouble::SenderBudget,
    Trouble::ReceiverBudget,
    Trouble::NoSuchController,
    Trouble::NoTurn,
];

pub(crate) fn number_of(trouble: Trouble) -> u8 {
    TROUBLES.iter().position(|t| *t == trouble).unwrap_or_default() as u8
}

impl Message {
    /// As it is sealed.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut w = Writer::default();
        match self {
            Message::Ready => w.u8(0),
            Message::Ping(n) => w.u8(1).u64(*n),
            Message::Pong(n) => w.u8(2).u64(*n),
            Message::Offer { bytes, limit_ms } => w.u8(3).u64(*bytes).u32(*limit_ms),
            Message::Go => w.u8(4),
            Message::Busy => w.u8(5),
            Message::Spent => w.u8(6),
            Message::Arrived { bytes } => w.u8(7).u64(*bytes),
            Message::Stored { store, sites, controllers } => {
                w.u8(8).u64(*store);
                for names in [sites, controllers] {
                    w.u16(names.len() as u16);
                    for name in names {
                        w.text(name);
                    }
                }
                &mut w
            }
            Message::Ask { table, after } => w.u8(9).u8(*table as u8).u64(*after),
            Message::Rows(rows) => {
                w.u8(10).u16(rows.len() as u16);
                for (id, row) in rows {
                    w.u64(*id);
                    row.write(&mut w);
                }
                &mut w
            }
            Message::End => w.u8(11),
        };
        w.0
    }

    /// Reads one.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(bytes: &[u8]) -> Result<Message, Malformed> {
        let mut r = Reader(bytes);
        let message = match r.u8()? {
            0 => Message::Ready,
            1 => Message::Ping(r.u64()?),
            2 => Message::Pong(r.u64()?),
            3 => Message::Offer { bytes: r.u64()?, limit_ms: r.u32()? },
            4 => Message::Go,
            5 => Message::Busy,
            6 => Message::Spent,
            7 => Message::Arrived { bytes: r.u64()? },
            8 => {
                let store = r.u64()?;
                let mut names = || -> Result<Vec<String>, Malformed> {
                    let n = r.u16()?;
                    (0..n).map(|_| r.text().map(str::to_owned)).collect()
                };
                Message::Stored { store, sites: names()?, controllers: names()? }
            }
            9 => {
                let table = *Table::ALL.get(usize::from(r.u8()?)).ok_or(Malformed)?;
                Message::Ask { table, after: r.u64()? }
            }
            10 => {
                let n = r.u16()?;
                Message::Rows((0..n).map(|_| Ok((r.u64()?, Row::read(&mut r)?))).collect::<Result<_, _>>()?)
            }
            11 => Message::End,
            _ => return Err(Malformed),
        };
        r.end()?;
        Ok(message)
    }
}

fn span(r: &mut Reader<'_>) -> Result<Span, Malformed> {
    r.u64().map(Span::from_nanos)
}

fn share(r: &mut Reader<'_>) -> Result<f32, Malformed> {
    let share = f32::from_bits(r.u32()?);
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err(Malformed) }
}

fn pair(r: &mut Reader<'_>) -> Result<Pair, Malformed> {
    Ok(Pair { from: r.u16()?, to: r.u16()? })
}

impl Row {
    /// When it was, and of which direction.
    pub fn pair(&self) -> (i64, Pair) {
        match self {
            Row::Transfer(t) => (t.at_ms, t.pair),
            Row::Minute(m) => (m.at_ms, m.pair),
            Row::Route(r) => (r.at_ms, r.pair),
        }
    }

    pub(crate) fn write(&self, w: &mut Writer) {
        let (at_ms, pair) = self.pair();
        w.i64(at_ms).u16(pair.from).u16(pair.to);
        match self {
            Row::Transfer(Transfer { period, controller, outcome, .. }) => {
                w.u8(0).i64(*period).u16(*controller);
                match outcome {
                    Outcome::Failed(trouble) => w.u8(1 + number_of(*trouble)),
                    Outcome::Done(m) => w
                        .u8(0)
                        .u64(m.bytes)
                        .u64(m.duration.as_nanos())
                        .u64(m.delivery_rate.map_or(0, Rate::as_bytes_per_sec))
                        .u64(m.rtt.as_nanos())
                        .u64(m.min_rtt.as_nanos())
                        .u32(m.segments)
                        .u32(m.retransmitted)
                        .u32(m.receive_window_limited.to_bits())
                        .u32(m.send_buffer_limited.to_bits())
                        .u64(m.cpu.as_nanos()),
                };
            }
            Row::Minute(Minute { sent, arrived, answered, rtt, .. }) => {
                w.u8(1).u16(*sent).u16(*arrived).u16(*answered).u8(rtt.is_some().into());
                for span in rtt.iter().flat_map(|b| [b.min, b.p50, b.p95, b.max]) {
                    w.u64(span.as_nanos());
                }
            }
            Row::Route(Route { hops, .. }) => {
                let hops = &hops[..hops.len().min(MOST_HOPS)];
                w.u8(2).u8(hops.len() as u8);
                for hop in hops {
                    match hop {
                        None => w.u8(0),
                        Some(IpAddr::V4(ip)) => w.u8(4).bytes(&ip.octets()),
                        Some(IpAddr::V6(ip)) => w.u8(6).bytes(&ip.octets()),
                    };
                }
            }
        }
    }

    fn read(r: &mut Reader<'_>) -> Result<Row, Malformed> {
        let (at_ms, pair) = (r.i64()?, pair(r)?);
        Ok(match r.u8()? {
            0 => {
                let (period, controller) = (r.i64()?, r.u16()?);
                let outcome = match r.u8()? {
                    0 => Outcome::Done(Box::new(Measured {
                        bytes: r.u64()?,
                        duration: span(r)?,
                        delivery_rate: match r.u64()? {
                            0 => None,
                            rate => Some(Rate::from_bytes_per_sec(rate)),
                        },
                        rtt: span(r)?,
                        min_rtt: span(r)?,
                        segments: r.u32()?,
                        retransmitted: r.u32()?,
                        receive_window_limited: share(r)?,
                        send_buffer_limited: share(r)?,
                        cpu: span(r)?,
                    })),
                    n => Outcome::Failed(*TROUBLES.get(usize::from(n) - 1).ok_or(Malformed)?),
                };
                Row::Transfer(Transfer { at_ms, period, pair, controller, outcome })
            }
            1 => {
                let (sent, arrived, answered) = (r.u16()?, r.u16()?, r.u16()?);
                let rtt = match r.u8()? {
                    0 => None,
                    1 => Some(RttBand { min: span(r)?, p50: span(r)?, p95: span(r)?, max: span(r)? }),
                    _ => return Err(Malformed),
                };
                Row::Minute(Minute { at_ms, pair, sent, arrived, answered, rtt })
            }
            2 => {
                let n = usize::from(r.u8()?);
                if n > MOST_HOPS {
                    return Err(Malformed);
                }
                let hop = |r: &mut Reader<'_>| {
                    Ok(match r.u8()? {
                        0 => None,
                        4 => Some(Ipv4Addr::from(r.array::<4>()?).into()),
                        6 => Some(Ipv6Addr::from(r.array::<16>()?).into()),
                        _ => return Err(Malformed),
                    })
                };
                let hops = (0..n).map(|_| hop(r)).collect::<Result<_, _>>()?;
                Row::Route(Route { at_ms, pair, hops })
            }
            _ => return Err(Malformed),
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn rows() -> Vec<Row> {
        let pair = Pair { from: 1, to: 0 };
        let done = Outcome::Done(Box::new(Measured {
            bytes: 8 << 20,
            duration: Span::from_millis(1700),
            delivery_rate: Some(Rate::from_bits_per_sec(50_000_000)),
            rtt: Span::from_micros(40_123),
            min_rtt: Span::from_micros(39_000),
            segments: 5900,
            retransmitted: 12,
            receive_window_limited: 0.25,
            send_buffer_limited: 0.0,
            cpu: Span::from_micros(2_500),
        }));
        let mut rows: Vec<Row> = TROUBLES
            .into_iter()
            .map(Outcome::Failed)
            .chain([done])
            .enumerate()
            .map(|(i, outcome)| {
                Row::Transfer(Transfer {
                    at_ms: 60_000 * i as i64,
                    period: i as i64,
                    pair,
                    controller: 1,
                    outcome,
                })
            })
            .collect();
        let ms = Span::from_millis;
        let rtt = Some(RttBand { min: ms(39), p50: ms(40), p95: ms(55), max: ms(90) });
        rows.push(Row::Minute(Minute { at_ms: 0, pair, sent: 60, arrived: 59, answered: 58, rtt }));
        rows.push(Row::Minute(Minute { at_ms: 60_000, pair, sent: 60, arrived: 0, answered: 0, rtt: None }));
        let hops = vec![Some("192.0.2.1".parse().unwrap()), None, Some("2001:db8::1".parse().unwrap())];
        rows.push(Row::Route(Route { at_ms: 5, pair, hops }));
        rows
    }

    #[test]
    fn every_message_is_read_as_it_was_written() {
        let names = |n: &[&str]| n.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        for message in [
            Message::Ready,
            Message::Ping(7),
            Message::Pong(8),
            Message::Offer { bytes: 8 << 20, limit_ms: 20_000 },
            Message::Go,
            Message::Busy,
            Message::Spent,
            Message::Arrived { bytes: 8 << 20 },
            Message::Stored { store: 3, sites: names(&["lab", "sea"]), controllers: names(&["cubic"]) },
            Message::Ask { table: Table::Routes, after: u64::MAX },
            Message::Rows((1..).zip(rows()).collect()),
            Message::End,
        ] {
            let bytes = message.to_bytes();
            assert_eq!(Message::parse(&bytes), Ok(message));
            assert_eq!(Message::parse(&bytes[..bytes.len() - 1]), Err(Malformed));
            assert_eq!(Message::parse(&[&bytes[..], b"x"].concat()), Err(Malformed));
        }
    }

    proptest! {
        #[test]
        fn what_is_understood_means_one_thing(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            if let Ok(message) = Message::parse(&bytes) {
                prop_assert_eq!(message.to_bytes(), bytes);
            }
        }
    }
}
