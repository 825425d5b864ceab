//! Messages between authenticated members, and the tables of a store.

use crate::record::{Measurement, Minute, Outcome, Pair, Route, RttBand, Transfer, TransferError};
use crate::wire::{Malformed, Reader, Writer};
use fullpipe_units::{Rate, Span};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A message of a session.
#[derive(Clone, PartialEq, Debug)]
pub enum Message {
    /// The initiator's first message, which proves its key.
    Ready,
    /// Keepalive request.
    Ping(u64),
    /// Keepalive reply.
    Pong(u64),
    /// Offers a transfer.
    Offer {
        /// Payload, bytes.
        bytes: u64,
        /// Time limit, milliseconds.
        limit_ms: u32,
    },
    /// Accepts the offer; exactly the offered bytes follow.
    Accept,
    /// Declines: another transfer is in progress.
    Busy,
    /// Declines: the daily budget is exhausted.
    BudgetSpent,
    /// Confirms that all bytes of the transfer arrived.
    Received {
        /// Number of bytes.
        bytes: u64,
    },
    /// Describes a store: its id and the names its records refer to.
    Catalog {
        /// The store's id: row ids are only valid with it.
        store: u64,
        /// Site names, indexed by the site ids of its records.
        sites: Vec<String>,
        /// Controller names, indexed by the controller ids of its records.
        controllers: Vec<String>,
    },
    /// Requests rows after an id.
    Request {
        /// The table.
        table: Table,
        /// The last id known.
        after: u64,
    },
    /// Rows with their ids in order; empty at the end of the table.
    Rows(Vec<(u64, Row)>),
    /// Ends the exchange.
    End,
}

/// The tables of a store.
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
    /// All tables.
    pub const ALL: [Table; 3] = [Table::Transfers, Table::Minutes, Table::Routes];
}

/// A row of one of the tables.
#[derive(Clone, PartialEq, Debug)]
pub enum Row {
    /// A transfer.
    Transfer(Transfer),
    /// A minute.
    Minute(Minute),
    /// A route.
    Route(Route),
}

/// Maximum bytes of rows per message, to fit a frame.
pub const MAX_ROWS_BYTES: usize = 48 << 10;
/// Maximum hops of a route, as many as a node traces.
pub const MAX_HOPS: usize = 30;

/// Transfer errors by their number in stores and messages, which never changes.
pub(crate) const TRANSFER_ERRORS: [TransferError; 12] = [
    TransferError::Unreachable,
    TransferError::Refused,
    TransferError::NotAMember,
    TransferError::Version,
    TransferError::MtuBlackHole,
    TransferError::Stalled,
    TransferError::TooSlow,
    TransferError::Broken,
    TransferError::SenderBudget,
    TransferError::ReceiverBudget,
    TransferError::NoSuchController,
    TransferError::Busy,
];

pub(crate) fn number_of(error: TransferError) -> u8 {
    TRANSFER_ERRORS.iter().position(|t| *t == error).unwrap_or_default() as u8
}

impl Message {
    /// Encodes the message.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut w = Writer::default();
        match self {
            Message::Ready => w.u8(0),
            Message::Ping(n) => w.u8(1).u64(*n),
            Message::Pong(n) => w.u8(2).u64(*n),
            Message::Offer { bytes, limit_ms } => w.u8(3).u64(*bytes).u32(*limit_ms),
            Message::Accept => w.u8(4),
            Message::Busy => w.u8(5),
            Message::BudgetSpent => w.u8(6),
            Message::Received { bytes } => w.u8(7).u64(*bytes),
            Message::Catalog { store, sites, controllers } => {
                w.u8(8).u64(*store);
                for names in [sites, controllers] {
                    w.u16(names.len() as u16);
                    for name in names {
                        w.text(name);
                    }
                }
                &mut w
            }
            Message::Request { table, after } => w.u8(9).u8(*table as u8).u64(*after),
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

    /// Decodes a message.
    ///
    /// # Errors
    /// If the bytes are not a message.
    pub fn parse(bytes: &[u8]) -> Result<Message, Malformed> {
        let mut r = Reader(bytes);
        let message = match r.u8()? {
            0 => Message::Ready,
            1 => Message::Ping(r.u64()?),
            2 => Message::Pong(r.u64()?),
            3 => Message::Offer { bytes: r.u64()?, limit_ms: r.u32()? },
            4 => Message::Accept,
            5 => Message::Busy,
            6 => Message::BudgetSpent,
            7 => Message::Received { bytes: r.u64()? },
            8 => {
                let store = r.u64()?;
                let mut names = || -> Result<Vec<String>, Malformed> {
                    let n = r.u16()?;
                    (0..n).map(|_| r.text().map(str::to_owned)).collect()
                };
                Message::Catalog { store, sites: names()?, controllers: names()? }
            }
            9 => {
                let table = *Table::ALL.get(usize::from(r.u8()?)).ok_or(Malformed)?;
                Message::Request { table, after: r.u64()? }
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
    /// Time and direction of the row.
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
                    Outcome::Failed(error) => w.u8(1 + number_of(*error)),
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
                let hops = &hops[..hops.len().min(MAX_HOPS)];
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
                    0 => Outcome::Done(Box::new(Measurement {
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
                    n => Outcome::Failed(*TRANSFER_ERRORS.get(usize::from(n) - 1).ok_or(Malformed)?),
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
                if n > MAX_HOPS {
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
        let done = Outcome::Done(Box::new(Measurement {
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
        let mut rows: Vec<Row> = TRANSFER_ERRORS
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
    fn messages_round_trip() {
        let names = |n: &[&str]| n.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        for message in [
            Message::Ready,
            Message::Ping(7),
            Message::Pong(8),
            Message::Offer { bytes: 8 << 20, limit_ms: 20_000 },
            Message::Accept,
            Message::Busy,
            Message::BudgetSpent,
            Message::Received { bytes: 8 << 20 },
            Message::Catalog { store: 3, sites: names(&["lab", "sea"]), controllers: names(&["cubic"]) },
            Message::Request { table: Table::Routes, after: u64::MAX },
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
        fn parsed_messages_have_one_encoding(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            if let Ok(message) = Message::parse(&bytes) {
                prop_assert_eq!(message.to_bytes(), bytes);
            }
        }
    }
}
