//! Records as tables for other programs: CSV, and Parquet with the feature `parquet`.

use crate::message::Table;
use crate::record::{History, Measurement, Minute, Outcome, Pair, RttBand};
use fullpipe_units::Span;
use std::io::{self, Write};

/// A column of a table; unknown values are `None`.
#[derive(Clone, PartialEq, Debug)]
pub struct Column {
    /// Column name, with the unit as suffix.
    pub name: &'static str,
    /// Column values.
    pub values: Values,
}

/// Values of one type.
#[derive(Clone, PartialEq, Debug)]
pub enum Values {
    /// Text.
    Text(Vec<Option<String>>),
    /// Integers.
    Whole(Vec<Option<i64>>),
    /// Floating-point numbers.
    Number(Vec<Option<f64>>),
}

/// The records of one table in time order, one row each. Times are milliseconds since 1970 (UTC) on
/// the sender's clock.
pub fn columns(history: &History, table: Table) -> Vec<Column> {
    match table {
        Table::Transfers => transfers(history),
        Table::Minutes => minutes(history),
        Table::Routes => routes(history),
    }
}

fn transfers(history: &History) -> Vec<Column> {
    let all = &history.transfers;
    let done = all.iter().map(|t| match &t.outcome {
        Outcome::Done(measured) => Some(&**measured),
        Outcome::Failed(_) => None,
    });
    let done: Vec<_> = done.collect();
    let whole = |name, of: &dyn Fn(&Measurement) -> i64| Column {
        name,
        values: Values::Whole(done.iter().map(|m| m.map(of)).collect()),
    };
    let number = |name, of: &dyn Fn(&Measurement) -> Option<f64>| Column {
        name,
        values: Values::Number(done.iter().map(|m| m.and_then(of)).collect()),
    };
    let controller = |id: u16| history.controllers.get(usize::from(id)).cloned();
    let error = |outcome: &Outcome| match outcome {
        Outcome::Done(_) => None,
        Outcome::Failed(error) => Some(error.name().to_owned()),
    };
    let own = [
        Column {
            name: "controller",
            values: Values::Text(all.iter().map(|t| controller(t.controller)).collect()),
        },
        Column { name: "period", values: Values::Whole(all.iter().map(|t| Some(t.period)).collect()) },
        Column { name: "error", values: Values::Text(all.iter().map(|t| error(&t.outcome)).collect()) },
        whole("bytes", &|m| m.bytes as i64),
        number("duration_s", &|m| Some(m.duration.as_secs_f64())),
        number("goodput_bps", &|m| Some(m.goodput().as_bits_per_sec_f64())),
        number("delivery_rate_bps", &|m| m.delivery_rate.map(|r| r.as_bits_per_sec_f64())),
        number("rtt_ms", &|m| Some(m.rtt.as_millis_f64())),
        number("min_rtt_ms", &|m| Some(m.min_rtt.as_millis_f64())),
        whole("segments", &|m| m.segments.into()),
        whole("retransmitted", &|m| m.retransmitted.into()),
        number("receive_window_limited", &|m| Some(m.receive_window_limited.into())),
        number("send_buffer_limited", &|m| Some(m.send_buffer_limited.into())),
        number("cpu_s", &|m| Some(m.cpu.as_secs_f64())),
    ];
    ends(history, all.iter().map(|t| (t.at_ms, t.pair))).into_iter().chain(own).collect()
}

fn minutes(history: &History) -> Vec<Column> {
    let all = &history.minutes;
    let counted = |name, of: &dyn Fn(&Minute) -> u16| Column {
        name,
        values: Values::Whole(all.iter().map(|m| Some(of(m).into())).collect()),
    };
    let rtt = |name, of: &dyn Fn(&RttBand) -> Span| Column {
        name,
        values: Values::Number(all.iter().map(|m| m.rtt.as_ref().map(|b| of(b).as_millis_f64())).collect()),
    };
    let own = [
        counted("sent", &|m| m.sent),
        counted("arrived", &|m| m.arrived),
        counted("answered", &|m| m.answered),
        rtt("rtt_min_ms", &|b| b.min),
        rtt("rtt_p50_ms", &|b| b.p50),
        rtt("rtt_p95_ms", &|b| b.p95),
        rtt("rtt_max_ms", &|b| b.max),
    ];
    ends(history, all.iter().map(|m| (m.at_ms, m.pair))).into_iter().chain(own).collect()
}

fn routes(history: &History) -> Vec<Column> {
    let all = &history.routes;
    let hops = all.iter().map(|r| {
        let hops: Vec<String> =
            r.hops.iter().map(|hop| hop.map_or("*".to_owned(), |ip| ip.to_string())).collect();
        Some(hops.join(" "))
    });
    let own = Column { name: "hops", values: Values::Text(hops.collect()) };
    ends(history, all.iter().map(|r| (r.at_ms, r.pair))).into_iter().chain([own]).collect()
}

/// The first columns of every table: time, sender and receiver.
fn ends(history: &History, of: impl Iterator<Item = (i64, Pair)>) -> [Column; 3] {
    let site = |id: u16| history.sites.get(usize::from(id)).cloned();
    let (mut at, mut from, mut to) = (Vec::new(), Vec::new(), Vec::new());
    for (at_ms, pair) in of {
        at.push(Some(at_ms));
        from.push(site(pair.from));
        to.push(site(pair.to));
    }
    [
        Column { name: "at_ms", values: Values::Whole(at) },
        Column { name: "from", values: Values::Text(from) },
        Column { name: "to", values: Values::Text(to) },
    ]
}

impl Values {
    fn len(&self) -> usize {
        match self {
            Values::Text(all) => all.len(),
            Values::Whole(all) => all.len(),
            Values::Number(all) => all.len(),
        }
    }
}

/// Writes a table as CSV with a header line.
///
/// # Errors
/// If the output cannot be written.
pub fn csv(columns: &[Column], out: &mut dyn Write) -> io::Result<()> {
    let names: Vec<&str> = columns.iter().map(|c| c.name).collect();
    writeln!(out, "{}", names.join(","))?;
    for row in 0..columns.first().map_or(0, |c| c.values.len()) {
        for (i, column) in columns.iter().enumerate() {
            if i > 0 {
                out.write_all(b",")?;
            }
            // Site and controller names never need quotes.
            match &column.values {
                Values::Text(all) => write!(out, "{}", all[row].as_deref().unwrap_or_default())?,
                Values::Whole(all) => all[row].map_or(Ok(()), |n| write!(out, "{n}"))?,
                Values::Number(all) => all[row].map_or(Ok(()), |n| write!(out, "{n}"))?,
            }
        }
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// Writes a table as Parquet, Snappy-compressed.
///
/// # Errors
/// If the output cannot be written.
#[cfg(feature = "parquet")]
pub fn parquet(columns: &[Column], out: &mut dyn Write) -> io::Result<()> {
    // The Parquet writer needs a `Send` sink, so the table is encoded in memory first.
    out.write_all(&encode(columns).map_err(io::Error::other)?)
}

#[cfg(feature = "parquet")]
fn encode(columns: &[Column]) -> Result<Vec<u8>, ::parquet::errors::ParquetError> {
    use ::parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
    use ::parquet::column::writer::ColumnWriter;
    use ::parquet::data_type::ByteArray;
    use ::parquet::errors::ParquetError;
    use ::parquet::file::properties::WriterProperties;
    use ::parquet::file::writer::SerializedFileWriter;
    use ::parquet::schema::types::Type;
    use std::sync::Arc;

    let disagree = || ParquetError::General("the schema and the rows disagree".to_owned());
    let fields = columns.iter().map(|column| {
        let (physical, logical) = match column.values {
            Values::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Values::Whole(_) => (Physical::INT64, None),
            Values::Number(_) => (Physical::DOUBLE, None),
        };
        let field = Type::primitive_type_builder(column.name, physical).with_logical_type(logical);
        field.with_repetition(Repetition::OPTIONAL).build().map(Arc::new)
    });
    let schema = Type::group_type_builder("mesh").with_fields(fields.collect::<Result<_, _>>()?).build()?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(format!("fullpipe {}", env!("CARGO_PKG_VERSION")))
        .build();
    let mut file = SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties))?;
    let mut group = file.next_row_group()?;
    for column in columns {
        let mut writer = group.next_column()?.ok_or_else(disagree)?;
        fn levels<T>(all: &[Option<T>]) -> Vec<i16> {
            all.iter().map(|v| i16::from(v.is_some())).collect()
        }
        match (writer.untyped(), &column.values) {
            (ColumnWriter::ByteArrayColumnWriter(w), Values::Text(all)) => {
                let values: Vec<ByteArray> =
                    all.iter().flatten().map(|text| ByteArray::from(text.as_str())).collect();
                w.write_batch(&values, Some(&levels(all)), None)?
            }
            (ColumnWriter::Int64ColumnWriter(w), Values::Whole(all)) => {
                w.write_batch(&all.iter().flatten().copied().collect::<Vec<_>>(), Some(&levels(all)), None)?
            }
            (ColumnWriter::DoubleColumnWriter(w), Values::Number(all)) => {
                w.write_batch(&all.iter().flatten().copied().collect::<Vec<_>>(), Some(&levels(all)), None)?
            }
            _ => return Err(disagree()),
        };
        writer.close()?;
    }
    group.close()?;
    file.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Row, tests::rows};

    fn history() -> History {
        let names = |n: &[&str]| n.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        let mut history = History {
            sites: names(&["lab", "sea"]),
            controllers: names(&["cubic", "bbr"]),
            ..History::default()
        };
        for row in rows() {
            match row {
                Row::Transfer(t) => history.transfers.push(t),
                Row::Minute(m) => history.minutes.push(m),
                Row::Route(r) => history.routes.push(r),
            }
        }
        history
    }

    #[test]
    fn a_table_has_one_row_per_record_and_empty_fields_for_unknown_values() {
        let mut out = Vec::new();
        csv(&columns(&history(), Table::Transfers), &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 1 + history().transfers.len());
        assert_eq!(lines[1], "0,sea,lab,bbr,0,unreachable,,,,,,,,,,,");
        let done = "sea,lab,bbr,12,,8388608,1.7,39475800";
        assert!(lines[13].starts_with(&format!("720000,{done}")), "{}", lines[13]);
        let mut out = Vec::new();
        csv(&columns(&history(), Table::Routes), &mut out).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "at_ms,from,to,hops\n5,sea,lab,192.0.2.1 * 2001:db8::1\n"
        );
    }

    #[cfg(feature = "parquet")]
    #[test]
    fn parquet_round_trips_with_types() {
        use ::parquet::file::reader::{FileReader, SerializedFileReader};
        use ::parquet::record::RowAccessor;
        let mut out = Vec::new();
        parquet(&columns(&history(), Table::Minutes), &mut out).unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&out).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].get_string(1).unwrap(), "sea");
        assert_eq!((rows[0].get_long(4).unwrap(), rows[0].get_double(7).unwrap()), (59, 40.0));
        assert!(rows[1].get_double(7).is_err(), "no reply");
    }
}
