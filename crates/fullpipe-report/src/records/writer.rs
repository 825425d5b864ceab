//! Records on their way to files.

use super::files::Files;
use super::lines;
#[cfg(feature = "parquet")]
use super::parquet::Rows;
use fullpipe_experiment::connection::Connection;
use std::fmt::{self, Display, Formatter};
use std::fs::File;
use std::io::{self, Stdout, Write};
use std::path::Path;

/// When files rotate, and how many are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rotation {
    /// Maximum bytes of a file. A Parquet file may exceed it by one row group.
    pub bytes: u64,
    /// Number of files kept, the current one included; the oldest is deleted.
    pub files: u32,
}

/// Records could not be written.
#[derive(Debug)]
pub struct RecordsError {
    path: String,
    reason: Reason,
}

#[derive(Debug)]
enum Reason {
    Format,
    Io(io::Error),
}

impl std::error::Error for RecordsError {}

impl RecordsError {
    /// Whether it was stopped before the FIFO had a reader.
    pub fn is_stopped(&self) -> bool {
        matches!(&self.reason, Reason::Io(e) if e.kind() == io::ErrorKind::Interrupted)
    }

    /// Whether the reading end of the pipe was closed.
    pub fn is_closed_pipe(&self) -> bool {
        matches!(&self.reason, Reason::Io(e) if e.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl Display for RecordsError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "cannot write {}: ", self.path)?;
        match &self.reason {
            Reason::Format => {
                let parquet = if cfg!(feature = "parquet") { " or .parquet" } else { "" };
                write!(f, "the file name must end in .jsonl{parquet}; `-` is standard output")
            }
            Reason::Io(e) => e.fmt(f),
        }
    }
}

/// Writes records one by one.
#[derive(Debug)]
pub struct Writer {
    path: String,
    sink: Sink,
    written: u64,
}

#[derive(Debug)]
enum Sink {
    Lines(Lines),
    #[cfg(feature = "parquet")]
    Rows(Rows),
}

/// Lines of JSON.
#[derive(Debug)]
struct Lines {
    target: Target,
    rotation: Rotation,
    /// Complete lines that are not written yet.
    pending: Vec<u8>,
    /// Number of records in `pending`.
    records: u64,
    line: Vec<u8>,
}

#[derive(Debug)]
enum Target {
    Stdout(Stdout),
    /// A pipe or a device.
    Stream(File),
    /// The rotated files, the open one, and its length in complete lines.
    Files(Files, File, u64),
}

/// Bytes that are collected before a write.
const WRITE_BYTES: usize = 1 << 18;

impl Writer {
    /// Opens `path` for writing; `-` is standard output. An existing file is rotated. A FIFO is opened
    /// when it has a reader, or not at all once `should_stop` returns true.
    ///
    /// # Errors
    /// The extension is not that of a records format, or the path cannot be written.
    pub fn open(
        path: &Path,
        rotation: Rotation,
        should_stop: &dyn Fn() -> bool,
    ) -> Result<Writer, RecordsError> {
        let name =
            if path.as_os_str() == "-" { "standard output".to_owned() } else { path.display().to_string() };
        let fail = |reason| RecordsError { path: name.clone(), reason };
        let extension = path.extension().map(|e| e.to_string_lossy().to_lowercase());
        let files = Files::at(path, rotation.files).map_err(|e| fail(Reason::Io(e)))?;
        let sink = if path.as_os_str() == "-" {
            Sink::lines(Target::Stdout(io::stdout()), rotation)
        } else if files.is_special().map_err(|e| fail(Reason::Io(e)))? {
            let stream = files.current().write_when_ready(should_stop).map_err(|e| fail(Reason::Io(e)))?;
            Sink::lines(Target::Stream(stream), rotation)
        } else {
            match extension.as_deref() {
                Some("jsonl" | "ndjson") => {
                    let file = files.rotate().and_then(|()| files.create());
                    let file = file.map_err(|e| fail(Reason::Io(e)))?;
                    Sink::lines(Target::Files(files, file, 0), rotation)
                }
                #[cfg(feature = "parquet")]
                Some("parquet") => Sink::Rows(Rows::open(files, rotation).map_err(|e| fail(Reason::Io(e)))?),
                _ => return Err(fail(Reason::Format)),
            }
        };
        Ok(Writer { path: name, sink, written: 0 })
    }

    /// Writes a record. It may stay buffered until [`flush`](Self::flush).
    ///
    /// # Errors
    /// The record cannot be written. The file then ends with the last record that
    /// [`written`](Self::written) counts.
    pub fn write(&mut self, record: &Connection) -> Result<(), RecordsError> {
        let outcome = match &mut self.sink {
            Sink::Lines(lines) => lines.write(record, &mut self.written),
            #[cfg(feature = "parquet")]
            Sink::Rows(rows) => rows.write(record, &mut self.written),
        };
        self.with_path(outcome)
    }

    /// Writes buffered lines, so that a reader can follow the file. Parquet is not readable before
    /// its end.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn flush(&mut self) -> Result<(), RecordsError> {
        let outcome = match &mut self.sink {
            Sink::Lines(lines) => lines.flush(&mut self.written),
            #[cfg(feature = "parquet")]
            Sink::Rows(_) => Ok(()),
        };
        self.with_path(outcome)
    }

    /// Number of records completely written.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Writes everything buffered and returns the number of records written.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn finish(mut self) -> Result<u64, RecordsError> {
        self.flush()?;
        #[cfg(feature = "parquet")]
        if let Sink::Rows(rows) = &mut self.sink {
            let outcome = rows.finish(&mut self.written);
            self.with_path(outcome)?;
        }
        Ok(self.written)
    }

    fn with_path(&self, outcome: io::Result<()>) -> Result<(), RecordsError> {
        outcome.map_err(|e| RecordsError { path: self.path.clone(), reason: Reason::Io(e) })
    }
}

impl Sink {
    fn lines(target: Target, rotation: Rotation) -> Sink {
        Sink::Lines(Lines { target, rotation, pending: Vec::new(), records: 0, line: Vec::new() })
    }
}

impl Lines {
    fn write(&mut self, record: &Connection, written: &mut u64) -> io::Result<()> {
        self.line.clear();
        lines::line(record, &mut self.line)?;
        let room = match &self.target {
            Target::Files(_, _, bytes) => {
                self.rotation.bytes.saturating_sub(bytes + self.pending.len() as u64)
            }
            _ => u64::MAX,
        };
        if self.line.len() as u64 > room {
            self.flush(written)?;
            // A file has at least one line.
            if let Target::Files(files, file, bytes) = &mut self.target
                && *bytes > 0
            {
                files.rotate()?;
                (*file, *bytes) = (files.create()?, 0);
            }
        }
        self.pending.extend_from_slice(&self.line);
        self.records += 1;
        if self.pending.len() >= WRITE_BYTES { self.flush(written) } else { Ok(()) }
    }

    fn flush(&mut self, written: &mut u64) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let length = self.pending.len() as u64;
        let outcome = match &mut self.target {
            Target::Stdout(out) => out.write_all(&self.pending).and_then(|()| out.flush()),
            Target::Stream(out) => out.write_all(&self.pending),
            Target::Files(_, file, bytes) => match write_counted(&mut *file, &self.pending) {
                (_, Ok(())) => {
                    *bytes += length;
                    Ok(())
                }
                // A partial line would not be a record: cut the file back to its complete lines.
                (done, Err(e)) => {
                    let (length, count) = complete_lines(&self.pending[..done]);
                    *bytes += length;
                    *written += count;
                    file.set_len(*bytes).and(Err(e))
                }
            },
        };
        // Failed lines are not retried.
        self.pending.clear();
        let records = std::mem::take(&mut self.records);
        outcome.inspect(|()| *written += records)
    }
}

/// Bytes and number of the complete lines at the start of `bytes`.
fn complete_lines(bytes: &[u8]) -> (u64, u64) {
    let end = bytes.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
    (end as u64, bytes[..end].iter().filter(|&&b| b == b'\n').count() as u64)
}

/// Writes all of `bytes`, and returns how many were written before an error.
fn write_counted(mut out: impl Write, bytes: &[u8]) -> (usize, io::Result<()>) {
    let mut done = 0;
    while done < bytes.len() {
        match out.write(&bytes[done..]) {
            Ok(0) => return (done, Err(io::ErrorKind::WriteZero.into())),
            Ok(length) => done += length,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return (done, Err(e)),
        }
    }
    (done, Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::connection;
    use std::fs;

    fn read(path: &Path) -> Vec<Connection> {
        fs::read_to_string(path).unwrap().lines().map(|l| serde_json::from_str(l).unwrap()).collect()
    }

    /// A disk with this much room.
    struct Disk(usize);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match bytes.len().min(self.0).min(7) {
                0 => Err(io::ErrorKind::StorageFull.into()),
                length => {
                    self.0 -= length;
                    Ok(length)
                }
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn complete_lines_that_fit_on_a_full_disk_are_kept() {
        let lines = b"first\nsecond\nthird\n";
        for (room, kept) in [(0, (0, 0)), (5, (0, 0)), (6, (6, 1)), (12, (6, 1)), (18, (13, 2))] {
            let (done, outcome) = write_counted(Disk(room), lines);
            assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::StorageFull);
            assert_eq!((done, complete_lines(&lines[..done])), (room, kept));
        }
        assert!(matches!(write_counted(Disk(19), lines), (19, Ok(()))));
    }

    #[test]
    fn a_fifo_without_a_reader_is_waited_for_until_asked_to_stop() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("closed.jsonl");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let asked = std::cell::Cell::new(0);
        let should_stop = || {
            asked.set(asked.get() + 1);
            asked.get() == 3
        };
        let error = Writer::open(&fifo, Rotation { bytes: 1000, files: 1 }, &should_stop).unwrap_err();
        assert!(error.is_stopped() && asked.get() == 3, "{error}");
        let path = fifo.clone();
        let reader = std::thread::spawn(move || fs::read_to_string(path).unwrap());
        let mut writer = Writer::open(&fifo, Rotation { bytes: 1000, files: 1 }, &|| false).unwrap();
        writer.write(&connection(1)).unwrap();
        writer.finish().unwrap();
        assert_eq!(reader.join().unwrap().lines().count(), 1);
    }

    #[test]
    fn written_records_read_back_and_name_their_schema() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("closed.jsonl");
        let mut writer = Writer::open(&path, Rotation { bytes: 1 << 20, files: 2 }, &|| false).unwrap();
        let records: Vec<Connection> = (1..=20).map(connection).collect();
        for record in &records {
            writer.write(record).unwrap();
        }
        assert_eq!((writer.written(), fs::metadata(&path).unwrap().len()), (0, 0));
        assert_eq!(writer.finish().unwrap(), 20);
        assert_eq!(read(&path), records);
        let text = fs::read_to_string(&path).unwrap();
        let first = text.lines().next().unwrap();
        assert!(first.contains("\"schema\":\"fullpipe/connection/1\""), "{first}");
        assert!(!first.contains("null") && first.len() < 1500, "{} bytes: {first}", first.len());
    }

    #[test]
    fn rotation_loses_only_the_oldest_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("closed.jsonl");
        fs::write(&path, "earlier\n").unwrap();
        let mut writer = Writer::open(&path, Rotation { bytes: 5000, files: 4 }, &|| false).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("closed.1.jsonl")).unwrap(), "earlier\n");
        for number in 1..=40 {
            writer.write(&connection(number)).unwrap();
        }
        assert_eq!(writer.finish().unwrap(), 40);
        let mut numbers = Vec::new();
        for name in ["closed.3.jsonl", "closed.2.jsonl", "closed.1.jsonl", "closed.jsonl"] {
            let path = dir.path().join(name);
            assert!(fs::metadata(&path).unwrap().len() <= 5000);
            numbers.extend(read(&path).into_iter().map(|c| c.number));
        }
        assert!(numbers.len() >= 10 && numbers.len() < 40, "{numbers:?}");
        let last: Vec<u32> = (41 - numbers.len() as u32..=40).collect();
        assert_eq!(numbers, last);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 4);
    }

    #[test]
    fn unknown_extension_and_missing_directory_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        let rotation = Rotation { bytes: 1000, files: 1 };
        for (name, expected) in
            [("x.csv", ".jsonl"), ("x", ".jsonl"), ("no/x.jsonl", "No such file"), ("", "directory")]
        {
            let error = Writer::open(&dir.path().join(name), rotation, &|| false).unwrap_err().to_string();
            assert!(error.contains(expected), "{name}: {error}");
        }
        Writer::open(Path::new("/dev/null"), rotation, &|| false).unwrap().write(&connection(1)).unwrap();
    }
}
