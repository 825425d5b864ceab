//! Records as rows of Parquet, Snappy-compressed: a column a figure, with those of the direction that the socket sent.
//!
//! The file has its name when it is whole: its index stands at its end.

mod footer;

use super::files::Files;
use super::reader::Found;
use super::seen::{self, Seen, received, sent};
use super::writer::Bounds;
use fullpipe_experiment::connection::{Connection, Direction, Point};
use fullpipe_units::{Rate, Span};
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::record::{Field, Row};
use parquet::schema::types::Type;
use serde::Serialize;
use std::fs::{self, File};
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// Connections of a row group: they are kept in memory until it is whole, 2 kB each.
const GROUP: usize = 8192;

/// Rows on their way to files.
#[derive(Debug)]
pub(super) struct Rows {
    files: Files,
    bounds: Bounds,
    current: Option<Unfinished>,
    pending: Vec<Connection>,
}

/// A file that is not whole yet; gone if it never becomes so.
struct Unfinished {
    path: PathBuf,
    writer: SerializedFileWriter<File>,
    rows: u64,
    is_whole: bool,
}

impl std::fmt::Debug for Unfinished {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unfinished").field("path", &self.path).field("rows", &self.rows).finish()
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.is_whole {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Unfinished {
    fn begin(files: &Files) -> io::Result<Unfinished> {
        let name = files.path().file_name().unwrap_or_default().to_string_lossy();
        let path = files.path().with_file_name(format!(".{name}.{}.part", std::process::id()));
        let file = Files::create(&path)?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(format!("fullpipe {}", env!("CARGO_PKG_VERSION")))
            .build();
        let writer = schema()
            .and_then(|schema| SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties)));
        match writer {
            Ok(writer) => Ok(Unfinished { path, writer, rows: 0, is_whole: false }),
            Err(e) => {
                let _ = fs::remove_file(&path);
                Err(failed(e))
            }
        }
    }
}

impl Rows {
    pub(super) fn open(files: Files, bounds: Bounds) -> io::Result<Rows> {
        let current = Some(Unfinished::begin(&files)?);
        Ok(Rows { files, bounds, current, pending: Vec::new() })
    }

    pub(super) fn take(&mut self, record: &Connection, written: &mut u64) -> io::Result<()> {
        self.pending.push(record.clone());
        if self.pending.len() < GROUP {
            return Ok(());
        }
        self.group()?;
        if self.current.as_ref().is_some_and(|c| c.writer.bytes_written() as u64 >= self.bounds.bytes) {
            self.whole(written)?;
        }
        Ok(())
    }

    /// Writes what there is, and gives the file its name.
    pub(super) fn finish(&mut self, written: &mut u64) -> io::Result<()> {
        self.group()?;
        self.whole(written)
    }

    /// Writes a row group.
    fn group(&mut self) -> io::Result<()> {
        let records = std::mem::take(&mut self.pending);
        if self.current.is_none() {
            self.current = Some(Unfinished::begin(&self.files)?);
        }
        let Some(current) = &mut self.current else { return Ok(()) };
        if records.is_empty() {
            return Ok(());
        }
        let outcome = write_group(&mut current.writer, &records);
        current.rows += records.len() as u64;
        outcome.map_err(|e| {
            // Its writer is in the middle of it: there is no whole file to be had.
            self.current = None;
            failed(e)
        })
    }

    fn whole(&mut self, written: &mut u64) -> io::Result<()> {
        let Some(mut current) = self.current.take() else { return Ok(()) };
        current.writer.finish().map_err(failed)?;
        self.files.turn()?;
        fs::rename(&current.path, self.files.path())?;
        current.is_whole = true;
        *written += current.rows;
        Ok(())
    }
}

/// The error beneath, where there is one: what a disk says.
fn failed(e: ParquetError) -> io::Error {
    match e {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(io) => *io,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}

/// What a cell may hold.
enum Cell {
    Text(Option<String>),
    Whole(Option<i64>),
    Real(Option<f64>),
}

struct Column {
    name: &'static str,
    cell: fn(&Connection) -> Cell,
}

/// A name of the JSON form: `resetByServer` is `reset_by_server` there.
fn name(of: impl Serialize) -> Cell {
    Cell::Text(serde_json::to_value(of).ok().and_then(|v| v.as_str().map(str::to_owned)))
}

fn count(of: u64) -> Cell {
    Cell::Whole(i64::try_from(of).ok())
}

fn seconds(of: Span) -> Cell {
    Cell::Real(Some(of.as_secs_f64()))
}

fn bps(of: Option<Rate>) -> Cell {
    Cell::Real(of.map(Rate::as_bits_per_sec_f64))
}

fn ms(of: Option<Span>) -> Cell {
    Cell::Real(of.map(Span::as_millis_f64))
}

macro_rules! of_socket {
    ($c:ident, $socket:ident => $value:expr) => {
        $c.socket.as_deref().and_then(|$socket| $value)
    };
}

const COLUMNS: &[Column] = &[
    Column { name: "number", cell: |c| count(c.number.into()) },
    Column { name: "start_s", cell: |c| Cell::Real(Some(c.start_s)) },
    Column { name: "duration_s", cell: |c| seconds(c.duration) },
    Column { name: "client", cell: |c| Cell::Text(Some(c.client.ip().to_string())) },
    Column { name: "client_port", cell: |c| count(c.client.port().into()) },
    Column { name: "server", cell: |c| Cell::Text(Some(c.server.ip().to_string())) },
    Column { name: "server_port", cell: |c| count(c.server.port().into()) },
    Column {
        name: "seen_from",
        cell: |c| {
            Cell::Text(Some(if c.vantage.point == Point::Client { "client" } else { "server" }.to_owned()))
        },
    },
    Column { name: "handshake", cell: |c| name(c.opening.handshake) },
    Column { name: "closing", cell: |c| name(c.closing) },
    Column { name: "errno", cell: |c| Cell::Whole(of_socket!(c, s => s.errno).map(i64::from)) },
    Column { name: "controller", cell: |c| Cell::Text(of_socket!(c, s => s.controller.clone())) },
    Column { name: "process", cell: |c| Cell::Text(of_socket!(c, s => s.owner.process.clone())) },
    Column { name: "pid", cell: |c| Cell::Whole(of_socket!(c, s => s.owner.pid).map(i64::from)) },
    Column { name: "uid", cell: |c| Cell::Whole(of_socket!(c, s => s.owner.uid).map(i64::from)) },
    Column { name: "cgroup", cell: |c| Cell::Text(of_socket!(c, s => s.owner.cgroup.clone())) },
    Column { name: "unit", cell: |c| Cell::Text(of_socket!(c, s => s.owner.unit.clone())) },
    Column { name: "container", cell: |c| Cell::Text(of_socket!(c, s => s.owner.container.clone())) },
    Column { name: "namespace", cell: |c| Cell::Whole(of_socket!(c, s => s.namespace).map(i64::from)) },
    Column { name: "sent_bytes", cell: |c| count(sent(c).bytes) },
    Column { name: "received_bytes", cell: |c| count(received(c).bytes) },
    Column { name: "sent_packets", cell: |c| count(sent(c).packets) },
    Column { name: "received_packets", cell: |c| count(received(c).packets) },
    Column { name: "segments", cell: |c| count(sent(c).segments) },
    Column { name: "segment_bytes", cell: |c| Cell::Whole(sent(c).segment_bytes.map(i64::from)) },
    Column { name: "retransmitted_segments", cell: |c| count(sent(c).retransmissions.segments) },
    Column { name: "retransmitted_bytes", cell: |c| count(sent(c).retransmissions.bytes) },
    Column { name: "spurious_segments", cell: |c| count(sent(c).retransmissions.spurious) },
    Column { name: "timeouts", cell: |c| Cell::Whole(of_socket!(c, s => i64::try_from(s.timeouts).ok())) },
    Column { name: "marked_packets", cell: |c| count(sent(c).ecn.marked_packets) },
    Column { name: "min_rtt_ms", cell: |c| ms(sent(c).rtprop) },
    Column { name: "srtt_ms", cell: |c| ms(of_socket!(c, s => s.srtt)) },
    Column { name: "active_s", cell: |c| seconds(sent(c).active) },
    Column { name: "busy_s", cell: |c| Cell::Real(of_socket!(c, s => Some(s.busy.as_secs_f64()))) },
    Column {
        name: "receive_window_limited_s",
        cell: |c| Cell::Real(of_socket!(c, s => Some(s.receive_window_limited.as_secs_f64()))),
    },
    Column {
        name: "send_buffer_limited_s",
        cell: |c| Cell::Real(of_socket!(c, s => Some(s.send_buffer_limited.as_secs_f64()))),
    },
    Column { name: "goodput_bps", cell: |c| bps(sent(c).goodput) },
    Column { name: "delivery_bps", cell: |c| bps(of_socket!(c, s => s.delivery)) },
    Column { name: "cwnd_segments", cell: |c| Cell::Whole(of_socket!(c, s => Some(s.cwnd_segments.into()))) },
    Column {
        name: "limited_by",
        cell: |c| Cell::Text(sent(c).limits.dominant().map(|l| l.by.name().to_owned())),
    },
    Column { name: "limited_share", cell: |c| Cell::Real(sent(c).limits.dominant().map(|l| l.share)) },
];

/// A connection of which nothing is known: what kind of cells a column has.
fn nothing() -> Connection {
    let nowhere = ([0, 0, 0, 0], 0).into();
    Connection {
        number: 0,
        client: nowhere,
        server: nowhere,
        start_s: 0.0,
        duration: Span::ZERO,
        opening: Default::default(),
        closing: Default::default(),
        vantage: Default::default(),
        to_server: Direction::default(),
        to_client: Direction::default(),
        notes: Vec::new(),
        socket: None,
    }
}

fn schema() -> Result<Type, ParquetError> {
    let nothing = nothing();
    let mut fields = Vec::new();
    for column in COLUMNS {
        let field = match (column.cell)(&nothing) {
            Cell::Text(_) => Type::primitive_type_builder(column.name, Physical::BYTE_ARRAY)
                .with_logical_type(Some(LogicalType::String)),
            Cell::Whole(_) => Type::primitive_type_builder(column.name, Physical::INT64),
            Cell::Real(_) => Type::primitive_type_builder(column.name, Physical::DOUBLE),
        };
        fields.push(Arc::new(field.with_repetition(Repetition::OPTIONAL).build()?));
    }
    Type::group_type_builder("connection").with_fields(fields).build()
}

fn write_group(file: &mut SerializedFileWriter<File>, records: &[Connection]) -> Result<(), ParquetError> {
    let disagree = || ParquetError::General("the schema and the rows disagree".to_owned());
    let mut group = file.next_row_group()?;
    for column in COLUMNS {
        let mut writer = group.next_column()?.ok_or_else(disagree)?;
        let (mut levels, mut texts, mut wholes, mut reals) =
            (Vec::with_capacity(records.len()), Vec::new(), Vec::new(), Vec::new());
        for record in records {
            let known = match (column.cell)(record) {
                Cell::Text(cell) => cell.map(|text| texts.push(ByteArray::from(text.as_str()))).is_some(),
                Cell::Whole(cell) => cell.map(|value| wholes.push(value)).is_some(),
                Cell::Real(cell) => cell.filter(|v| v.is_finite()).map(|value| reals.push(value)).is_some(),
            };
            levels.push(i16::from(known));
        }
        match writer.untyped() {
            ColumnWriter::ByteArrayColumnWriter(w) => w.write_batch(&texts, Some(&levels), None)?,
            ColumnWriter::Int64ColumnWriter(w) => w.write_batch(&wholes, Some(&levels), None)?,
            ColumnWriter::DoubleColumnWriter(w) => w.write_batch(&reals, Some(&levels), None)?,
            _ => return Err(disagree()),
        };
        writer.close()?;
    }
    group.close().map(drop)
}

/// Hands the rows of a file to `each`.
///
/// # Errors
/// What is no file of records.
pub(super) fn read(mut file: File, mut each: impl FnMut(Seen)) -> Result<Found, String> {
    footer::check(&mut file)?;
    let reader = SerializedFileReader::new(file).map_err(|e| e.to_string())?;
    let mut found = Found::default();
    for row in reader.get_row_iter(None).map_err(|e| e.to_string())? {
        found.connections += 1;
        let row = row.map_err(|e| format!("row {}: {e}", found.connections))?;
        each(
            seen(&row)
                .ok_or_else(|| format!("row {}: it is no record of a connection", found.connections))?,
        );
    }
    Ok(found)
}

/// What a row tells; none where it has no addresses.
fn seen(row: &Row) -> Option<Seen> {
    let field =
        |name: &str| row.get_column_iter().find(|(column, _)| *column == name).map(|(_, field)| field);
    let real = |name: &str| match field(name) {
        Some(Field::Double(value)) => Some(*value),
        _ => None,
    };
    let whole = |name: &str| match field(name) {
        Some(Field::Long(value)) => u64::try_from(*value).ok(),
        _ => None,
    };
    let text = |name: &str| match field(name) {
        Some(Field::Str(value)) => Some(value.as_str()),
        _ => None,
    };
    let remote: IpAddr =
        text(if text("seen_from") == Some("client") { "server" } else { "client" })?.parse().ok()?;
    let sent_bytes = whole("sent_bytes").unwrap_or(0);
    Some(Seen {
        controller: text("controller").map(str::to_owned),
        remote,
        port: whole("server_port").and_then(|port| port.try_into().ok())?,
        start_s: real("start_s")?,
        duration_s: real("duration_s").filter(|_| text("handshake") == Some("seen")),
        bytes: sent_bytes.saturating_add(whole("received_bytes").unwrap_or(0)),
        goodput_bps: match real("busy_s") {
            Some(busy_s) => seen::rate(sent_bytes, busy_s),
            None => real("goodput_bps"),
        },
        min_rtt_ms: real("min_rtt_ms"),
        segments: whole("segments").unwrap_or(0),
        retransmitted: whole("retransmitted_segments").unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::Writer;
    use crate::support::connection;
    use parquet::record::RowAccessor;

    #[test]
    fn rows_are_read_back_and_the_file_has_its_name_when_it_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("closed.parquet");
        let mut writer = Writer::open(&path, Bounds { bytes: 1 << 20, files: 2 }).unwrap();
        for number in 1..=20 {
            writer.write(&connection(number)).unwrap();
        }
        assert!(!path.exists() && writer.written() == 0);
        assert_eq!(writer.finish().unwrap(), 20);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        assert_eq!(rows.len(), 20);
        let at = |name: &str| COLUMNS.iter().position(|c| c.name == name).unwrap();
        let row = &rows[1];
        assert_eq!(row.get_string(at("controller")).unwrap(), "bbr");
        assert_eq!(row.get_string(at("client")).unwrap(), "192.0.2.2");
        assert_eq!(row.get_long(at("sent_bytes")).unwrap(), 1_000_002);
        assert_eq!(row.get_long(at("retransmitted_segments")).unwrap(), 10);
        assert_eq!(row.get_double(at("busy_s")).unwrap(), 1.6);
        assert_eq!(row.get_string(at("limited_by")).unwrap(), "bandwidth");
        assert!(row.get_string(at("container")).is_err(), "unknown is null");
        // One that never became whole leaves nothing.
        drop(Writer::open(&path, Bounds { bytes: 1 << 20, files: 2 }).unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
