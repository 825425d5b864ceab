//! Records as Parquet rows, Snappy-compressed: one column per field, for the direction that the
//! recorded socket sent.
//!
//! A Parquet file ends with its index, so it is written under a temporary name and renamed when
//! complete.

mod footer;

use super::files::Files;
use super::reader::ReadSummary;
use super::sample::{self, Sample, received, sent};
use super::writer::Rotation;
use fullpipe_experiment::connection::{Connection, Direction, Point};
use fullpipe_files::Location;
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
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

/// Connections of a row group. They stay in memory, 2 kB each, until the group is full.
const ROW_GROUP: usize = 8192;

/// Writes rows to rotated files.
#[derive(Debug)]
pub(super) struct Rows {
    files: Files,
    rotation: Rotation,
    current: Option<Unfinished>,
    pending: Vec<Connection>,
}

/// An incomplete file; deleted on drop unless it was completed.
struct Unfinished {
    location: Location,
    writer: SerializedFileWriter<File>,
    rows: u64,
    is_complete: bool,
}

impl std::fmt::Debug for Unfinished {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Unfinished").field("location", &self.location).field("rows", &self.rows).finish()
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.is_complete {
            let _ = self.location.remove();
        }
    }
}

impl Unfinished {
    fn create(files: &Files) -> io::Result<Unfinished> {
        let name = files.current().name().to_string_lossy();
        let random = RandomState::new().build_hasher().finish();
        let location = files.current().sibling(format!(".{name}.{random:016x}.part"))?;
        let file = location.create_new(0o600)?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_created_by(format!("fullpipe {}", env!("CARGO_PKG_VERSION")))
            .build();
        let writer = schema()
            .and_then(|schema| SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties)));
        match writer {
            Ok(writer) => Ok(Unfinished { location, writer, rows: 0, is_complete: false }),
            Err(e) => {
                let _ = location.remove();
                Err(io_error(e))
            }
        }
    }
}

impl Rows {
    pub(super) fn open(files: Files, rotation: Rotation) -> io::Result<Rows> {
        let current = Some(Unfinished::create(&files)?);
        Ok(Rows { files, rotation, current, pending: Vec::new() })
    }

    pub(super) fn write(&mut self, record: &Connection, written: &mut u64) -> io::Result<()> {
        self.pending.push(record.clone());
        if self.pending.len() < ROW_GROUP {
            return Ok(());
        }
        self.write_row_group()?;
        if self.current.as_ref().is_some_and(|c| c.writer.bytes_written() as u64 >= self.rotation.bytes) {
            self.complete(written)?;
        }
        Ok(())
    }

    /// Writes buffered rows and completes the file.
    pub(super) fn finish(&mut self, written: &mut u64) -> io::Result<()> {
        self.write_row_group()?;
        self.complete(written)
    }

    /// Writes the buffered rows as a row group.
    fn write_row_group(&mut self) -> io::Result<()> {
        let records = std::mem::take(&mut self.pending);
        if self.current.is_none() {
            self.current = Some(Unfinished::create(&self.files)?);
        }
        let Some(current) = &mut self.current else { return Ok(()) };
        if records.is_empty() {
            return Ok(());
        }
        let outcome = write_group(&mut current.writer, &records);
        current.rows += records.len() as u64;
        outcome.map_err(|e| {
            // The writer stopped within a row group: the file cannot be completed.
            self.current = None;
            io_error(e)
        })
    }

    fn complete(&mut self, written: &mut u64) -> io::Result<()> {
        let Some(mut current) = self.current.take() else { return Ok(()) };
        current.writer.finish().map_err(io_error)?;
        self.files.rotate()?;
        current.location.rename_to(self.files.current())?;
        current.is_complete = true;
        *written += current.rows;
        Ok(())
    }
}

/// The I/O error inside a Parquet error, if there is one.
fn io_error(e: ParquetError) -> io::Error {
    match e {
        ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(io) => *io,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}

/// The value of a cell.
enum Cell {
    Text(Option<String>),
    Integer(Option<i64>),
    Real(Option<f64>),
}

struct Column {
    name: &'static str,
    cell: fn(&Connection) -> Cell,
}

/// The name of a variant as in JSON: `ResetByServer` is `reset_by_server`.
fn name(value: impl Serialize) -> Cell {
    Cell::Text(serde_json::to_value(value).ok().and_then(|v| v.as_str().map(str::to_owned)))
}

fn count(value: u64) -> Cell {
    Cell::Integer(i64::try_from(value).ok())
}

fn seconds(value: Span) -> Cell {
    Cell::Real(Some(value.as_secs_f64()))
}

fn bps(value: Option<Rate>) -> Cell {
    Cell::Real(value.map(Rate::as_bits_per_sec_f64))
}

fn ms(value: Option<Span>) -> Cell {
    Cell::Real(value.map(Span::as_millis_f64))
}

macro_rules! socket_field {
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
    Column { name: "errno", cell: |c| Cell::Integer(socket_field!(c, s => s.errno).map(i64::from)) },
    Column { name: "controller", cell: |c| Cell::Text(socket_field!(c, s => s.controller.clone())) },
    Column { name: "process", cell: |c| Cell::Text(socket_field!(c, s => s.owner.process.clone())) },
    Column { name: "pid", cell: |c| Cell::Integer(socket_field!(c, s => s.owner.pid).map(i64::from)) },
    Column { name: "uid", cell: |c| Cell::Integer(socket_field!(c, s => s.owner.uid).map(i64::from)) },
    Column { name: "cgroup", cell: |c| Cell::Text(socket_field!(c, s => s.owner.cgroup.clone())) },
    Column { name: "unit", cell: |c| Cell::Text(socket_field!(c, s => s.owner.unit.clone())) },
    Column { name: "container", cell: |c| Cell::Text(socket_field!(c, s => s.owner.container.clone())) },
    Column { name: "namespace", cell: |c| Cell::Integer(socket_field!(c, s => s.namespace).map(i64::from)) },
    Column { name: "sent_bytes", cell: |c| count(sent(c).bytes) },
    Column { name: "received_bytes", cell: |c| count(received(c).bytes) },
    Column { name: "sent_packets", cell: |c| count(sent(c).packets) },
    Column { name: "received_packets", cell: |c| count(received(c).packets) },
    Column { name: "segments", cell: |c| count(sent(c).segments) },
    Column { name: "segment_bytes", cell: |c| Cell::Integer(sent(c).segment_bytes.map(i64::from)) },
    Column { name: "retransmitted_segments", cell: |c| count(sent(c).retransmissions.segments) },
    Column { name: "retransmitted_bytes", cell: |c| count(sent(c).retransmissions.bytes) },
    Column { name: "spurious_segments", cell: |c| count(sent(c).retransmissions.spurious) },
    Column {
        name: "timeouts",
        cell: |c| Cell::Integer(socket_field!(c, s => i64::try_from(s.timeouts).ok())),
    },
    Column { name: "marked_packets", cell: |c| count(sent(c).ecn.marked_packets) },
    Column { name: "min_rtt_ms", cell: |c| ms(sent(c).rtprop) },
    Column { name: "srtt_ms", cell: |c| ms(socket_field!(c, s => s.srtt)) },
    Column { name: "active_s", cell: |c| seconds(sent(c).active) },
    Column { name: "busy_s", cell: |c| Cell::Real(socket_field!(c, s => Some(s.busy.as_secs_f64()))) },
    Column {
        name: "receive_window_limited_s",
        cell: |c| Cell::Real(socket_field!(c, s => Some(s.receive_window_limited.as_secs_f64()))),
    },
    Column {
        name: "send_buffer_limited_s",
        cell: |c| Cell::Real(socket_field!(c, s => Some(s.send_buffer_limited.as_secs_f64()))),
    },
    Column { name: "goodput_bps", cell: |c| bps(sent(c).goodput) },
    Column { name: "delivery_bps", cell: |c| bps(socket_field!(c, s => s.delivery)) },
    Column {
        name: "cwnd_segments",
        cell: |c| Cell::Integer(socket_field!(c, s => Some(s.cwnd_segments.into()))),
    },
    Column {
        name: "limited_by",
        cell: |c| Cell::Text(sent(c).limits.dominant().map(|l| l.by.name().to_owned())),
    },
    Column { name: "limited_share", cell: |c| Cell::Real(sent(c).limits.dominant().map(|l| l.share)) },
];

/// A connection without data, to find the type of each column.
fn empty_connection() -> Connection {
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
        log: None,
    }
}

fn schema() -> Result<Type, ParquetError> {
    let empty = empty_connection();
    let mut fields = Vec::new();
    for column in COLUMNS {
        let field = match (column.cell)(&empty) {
            Cell::Text(_) => Type::primitive_type_builder(column.name, Physical::BYTE_ARRAY)
                .with_logical_type(Some(LogicalType::String)),
            Cell::Integer(_) => Type::primitive_type_builder(column.name, Physical::INT64),
            Cell::Real(_) => Type::primitive_type_builder(column.name, Physical::DOUBLE),
        };
        fields.push(Arc::new(field.with_repetition(Repetition::OPTIONAL).build()?));
    }
    Type::group_type_builder("connection").with_fields(fields).build()
}

fn write_group(file: &mut SerializedFileWriter<File>, records: &[Connection]) -> Result<(), ParquetError> {
    let mismatch = || ParquetError::General("the schema and the rows disagree".to_owned());
    let mut group = file.next_row_group()?;
    for column in COLUMNS {
        let mut writer = group.next_column()?.ok_or_else(mismatch)?;
        let (mut levels, mut texts, mut integers, mut reals) =
            (Vec::with_capacity(records.len()), Vec::new(), Vec::new(), Vec::new());
        for record in records {
            let known = match (column.cell)(record) {
                Cell::Text(cell) => cell.map(|text| texts.push(ByteArray::from(text.as_str()))).is_some(),
                Cell::Integer(cell) => cell.map(|value| integers.push(value)).is_some(),
                Cell::Real(cell) => cell.filter(|v| v.is_finite()).map(|value| reals.push(value)).is_some(),
            };
            levels.push(i16::from(known));
        }
        match writer.untyped() {
            ColumnWriter::ByteArrayColumnWriter(w) => w.write_batch(&texts, Some(&levels), None)?,
            ColumnWriter::Int64ColumnWriter(w) => w.write_batch(&integers, Some(&levels), None)?,
            ColumnWriter::DoubleColumnWriter(w) => w.write_batch(&reals, Some(&levels), None)?,
            _ => return Err(mismatch()),
        };
        writer.close()?;
    }
    group.close().map(drop)
}

/// Calls `each` for every row of a file.
///
/// # Errors
/// The file is not a Parquet file of records.
pub(super) fn read(mut file: File, mut each: impl FnMut(Sample)) -> Result<ReadSummary, String> {
    footer::check(&mut file)?;
    let reader = SerializedFileReader::new(file).map_err(|e| e.to_string())?;
    let mut found = ReadSummary::default();
    for row in reader.get_row_iter(None).map_err(|e| e.to_string())? {
        found.connections += 1;
        let row = row.map_err(|e| format!("row {}: {e}", found.connections))?;
        each(sample(&row).ok_or_else(|| format!("row {}: not a record of a connection", found.connections))?);
    }
    Ok(found)
}

/// The sample of a row; `None` if it has no addresses or start time.
fn sample(row: &Row) -> Option<Sample> {
    let field =
        |name: &str| row.get_column_iter().find(|(column, _)| *column == name).map(|(_, field)| field);
    let real = |name: &str| match field(name) {
        Some(Field::Double(value)) => Some(*value),
        _ => None,
    };
    let integer = |name: &str| match field(name) {
        Some(Field::Long(value)) => u64::try_from(*value).ok(),
        _ => None,
    };
    let text = |name: &str| match field(name) {
        Some(Field::Str(value)) => Some(value.as_str()),
        _ => None,
    };
    let remote: IpAddr =
        text(if text("seen_from") == Some("client") { "server" } else { "client" })?.parse().ok()?;
    let sent_bytes = integer("sent_bytes").unwrap_or(0);
    Some(Sample {
        controller: text("controller").map(str::to_owned),
        remote,
        port: integer("server_port").and_then(|port| port.try_into().ok())?,
        start_s: real("start_s")?,
        duration_s: real("duration_s").filter(|_| text("handshake") == Some("seen")),
        bytes: sent_bytes.saturating_add(integer("received_bytes").unwrap_or(0)),
        goodput_bps: match real("busy_s") {
            Some(busy_s) => sample::rate(sent_bytes, busy_s),
            None => real("goodput_bps"),
        },
        min_rtt_ms: real("min_rtt_ms"),
        segments: integer("segments").unwrap_or(0),
        retransmitted: integer("retransmitted_segments").unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::Writer;
    use crate::support::connection;
    use parquet::record::RowAccessor;

    #[test]
    fn rows_read_back_and_the_file_appears_when_complete() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("closed.parquet");
        let mut writer = Writer::open(&path, Rotation { bytes: 1 << 20, files: 2 }, &|| false).unwrap();
        for number in 1..=20 {
            writer.write(&connection(number)).unwrap();
        }
        assert!(!path.exists() && writer.written() == 0);
        assert_eq!(writer.finish().unwrap(), 20);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
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
        // A file that was never completed leaves nothing.
        drop(Writer::open(&path, Rotation { bytes: 1 << 20, files: 2 }, &|| false).unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
