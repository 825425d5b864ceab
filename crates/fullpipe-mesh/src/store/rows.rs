//! Conversion between records and database rows.

use crate::message::{MAX_HOPS, Row, TRANSFER_ERRORS, Table, number_of};
use crate::record::{Measurement, Minute, Outcome, Pair, Route, RttBand, Transfer};
use fullpipe_units::{Rate, Span};
use rusqlite::{Connection, params};
use std::collections::HashMap;

pub(super) fn table_name(table: Table) -> &'static str {
    match table {
        Table::Transfers => "transfer",
        Table::Minutes => "minute",
        Table::Routes => "route",
    }
}

pub(super) fn select(table: Table, condition: &str) -> String {
    let columns = match table {
        Table::Transfers => {
            "period, controller, trouble, bytes, duration_ns, delivery_rate, rtt_ns, min_rtt_ns,
                segments, retransmitted,
             receive_window_limited, send_buffer_limited, cpu_ns FROM transfer"
        }
        Table::Minutes => {
            "sent, arrived, answered, rtt_min_ns, rtt_p50_ns, rtt_p95_ns, rtt_max_ns FROM minute"
        }
        Table::Routes => "hops FROM route",
    };
    format!("SELECT id, at_ms, sender, receiver, {columns} WHERE {condition}")
}

pub(super) fn insert(db: &Connection, row: &Row, sites: &[i64], controllers: &[i64]) -> rusqlite::Result<()> {
    let unknown = || rusqlite::Error::InvalidParameterName("unknown site or controller".into());
    let (at_ms, pair) = row.pair();
    let site = |id: u16| sites.get(usize::from(id)).copied().ok_or_else(unknown);
    let (sender, receiver) = (site(pair.from)?, site(pair.to)?);
    let ns = |span: Span| span.as_nanos() as i64;
    match row {
        Row::Transfer(t) => {
            let controller = controllers.get(usize::from(t.controller)).ok_or_else(unknown)?;
            let (trouble, m) = match &t.outcome {
                Outcome::Done(measured) => (None, Some(measured)),
                Outcome::Failed(trouble) => (Some(number_of(*trouble)), None),
            };
            db.prepare_cached(
                "INSERT INTO transfer VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            )?
            .execute(params![
                at_ms,
                sender,
                receiver,
                t.period,
                controller,
                trouble,
                m.map(|m| m.bytes as i64),
                m.map(|m| ns(m.duration)),
                m.and_then(|m| m.delivery_rate).map(|rate| rate.as_bytes_per_sec() as i64),
                m.map(|m| ns(m.rtt)),
                m.map(|m| ns(m.min_rtt)),
                m.map(|m| m.segments),
                m.map(|m| m.retransmitted),
                m.map(|m| m.receive_window_limited),
                m.map(|m| m.send_buffer_limited),
                m.map(|m| ns(m.cpu)),
            ])
        }
        Row::Minute(m) => db
            .prepare_cached("INSERT INTO minute VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")?
            .execute(params![
                at_ms,
                sender,
                receiver,
                m.sent,
                m.arrived,
                m.answered,
                m.rtt.map(|b| ns(b.min)),
                m.rtt.map(|b| ns(b.p50)),
                m.rtt.map(|b| ns(b.p95)),
                m.rtt.map(|b| ns(b.max)),
            ]),
        Row::Route(route) => {
            let hops: Vec<String> =
                route.hops.iter().map(|hop| hop.map_or("*".to_owned(), |ip| ip.to_string())).collect();
            db.prepare_cached("INSERT INTO route VALUES (NULL, ?, ?, ?, ?)")?.execute(params![
                at_ms,
                sender,
                receiver,
                hops.join(" ")
            ])
        }
    }
    .map(drop)
}

pub(super) fn read_row(
    table: Table,
    row: &rusqlite::Row<'_>,
    sites: &HashMap<i64, u16>,
    controllers: &HashMap<i64, u16>,
) -> rusqlite::Result<Row> {
    let place = |places: &HashMap<i64, u16>, column: usize| {
        let id: i64 = row.get(column)?;
        places.get(&id).copied().ok_or(rusqlite::Error::IntegralValueOutOfRange(column, id))
    };
    let span = |column: usize| row.get::<_, i64>(column).map(|ns| Span::from_nanos(ns.max(0) as u64));
    let at_ms = row.get(1)?;
    let pair = Pair { from: place(sites, 2)?, to: place(sites, 3)? };
    Ok(match table {
        Table::Transfers => {
            let outcome = match row.get::<_, Option<i64>>(6)? {
                Some(number) => {
                    let trouble = usize::try_from(number).ok().and_then(|n| TRANSFER_ERRORS.get(n));
                    Outcome::Failed(*trouble.ok_or(rusqlite::Error::IntegralValueOutOfRange(6, number))?)
                }
                None => Outcome::Done(Box::new(Measurement {
                    bytes: row.get::<_, i64>(7)?.max(0) as u64,
                    duration: span(8)?,
                    delivery_rate: row
                        .get::<_, Option<i64>>(9)?
                        .map(|rate| Rate::from_bytes_per_sec(rate.max(0) as u64)),
                    rtt: span(10)?,
                    min_rtt: span(11)?,
                    segments: row.get(12)?,
                    retransmitted: row.get(13)?,
                    receive_window_limited: row.get(14)?,
                    send_buffer_limited: row.get(15)?,
                    cpu: span(16)?,
                })),
            };
            let (period, controller) = (row.get(4)?, place(controllers, 5)?);
            Row::Transfer(Transfer { at_ms, period, pair, controller, outcome })
        }
        Table::Minutes => {
            let rtt = match row.get::<_, Option<i64>>(7)? {
                None => None,
                Some(_) => Some(RttBand { min: span(7)?, p50: span(8)?, p95: span(9)?, max: span(10)? }),
            };
            let (sent, arrived, answered) = (row.get(4)?, row.get(5)?, row.get(6)?);
            Row::Minute(Minute { at_ms, pair, sent, arrived, answered, rtt })
        }
        Table::Routes => {
            let written: String = row.get(4)?;
            let hops: Vec<_> =
                written.split_whitespace().take(MAX_HOPS + 1).map(|hop| hop.parse().ok()).collect();
            if hops.len() > MAX_HOPS {
                return Err(rusqlite::Error::IntegralValueOutOfRange(4, hops.len() as i64));
            }
            Row::Route(Route { at_ms, pair, hops })
        }
    })
}
