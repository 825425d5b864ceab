//! Records on their way to files.

use super::files::Files;
use super::lines;
#[cfg(feature = "parquet")]
use super::parquet::Rows;
use fullpipe_experiment::connection::Connection;
use std::fmt::{self, Display, Formatter};
use std::fs::{File, OpenOptions};
use std::io::{self, Stdout, Write};
use std::path::Path;

/// How much may be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Bytes of a file, after which the next takes its turn. Of Parquet a row group more.
    pub bytes: u64,
    /// Files, with the one that is written: the eldest goes.
    pub files: u32,
}

/// Why records cannot be written.
#[derive(Debug)]
pub struct RecordsError {
    path: String,
    reason: Reason,
}

#[derive(Debug)]
enum Reason {
    Form,
    Io(io::Error),
}

impl std::error::Error for RecordsError {}

impl RecordsError {
    /// Whether nobody reads what is written any more.
    pub fn is_unread(&self) -> bool {
        matches!(&self.reason, Reason::Io(e) if e.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl Display for RecordsError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "cannot write {}: ", self.path)?;
        match &self.reason {
            Reason::Form => {
                let parquet = if cfg!(feature = "parquet") { " or .parquet" } else { "" };
                write!(
                    f,
                    "records are written to a file that ends in .jsonl{parquet}, or `-` for standard output"
                )
            }
            Reason::Io(e) => e.fmt(f),
        }
    }
}

/// Takes records, one after the other.
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
    to: To,
    bounds: Bounds,
    /// Whole lines that are still to be written.
    pending: Vec<u8>,
    /// How many.
    records: u64,
    line: Vec<u8>,
}

#[derive(Debug)]
enum To {
    Stdout(Stdout),
    /// What is no file.
    Stream(File),
    /// The file, and the bytes of whole lines in it.
    Files(Files, File, u64),
}

/// Written at once.
const AT_ONCE: usize = 1 << 18;

impl Writer {
    /// Makes sure that `path` can be written; `-` is standard output. A file that is there takes its turn as the one before.
    ///
    /// # Errors
    /// A name that no form of records has, a place that cannot be written.
    pub fn open(path: &Path, bounds: Bounds) -> Result<Writer, RecordsError> {
        let name =
            if path.as_os_str() == "-" { "standard output".to_owned() } else { path.display().to_string() };
        let fail = |reason| RecordsError { path: name.clone(), reason };
        let extension = path.extension().map(|e| e.to_string_lossy().to_lowercase());
        let files = Files::at(path, bounds.files);
        let sink = if path.as_os_str() == "-" {
            Sink::lines(To::Stdout(io::stdout()), bounds)
        } else if files.is_special().map_err(|e| fail(Reason::Io(e)))? {
            let stream = OpenOptions::new().write(true).open(path).map_err(|e| fail(Reason::Io(e)))?;
            Sink::lines(To::Stream(stream), bounds)
        } else {
            match extension.as_deref() {
                Some("jsonl" | "ndjson") => {
                    let file = files.turn().and_then(|()| Files::create(files.path()));
                    let file = file.map_err(|e| fail(Reason::Io(e)))?;
                    Sink::lines(To::Files(files, file, 0), bounds)
                }
                #[cfg(feature = "parquet")]
                Some("parquet") => Sink::Rows(Rows::open(files, bounds).map_err(|e| fail(Reason::Io(e)))?),
                _ => return Err(fail(Reason::Form)),
            }
        };
        Ok(Writer { path: name, sink, written: 0 })
    }

    /// Takes a record. It may be kept until [`flush`](Self::flush).
    ///
    /// # Errors
    /// When it cannot be written: then the file ends with the last record before those that [`written`](Self::written) does not
    /// count.
    pub fn write(&mut self, record: &Connection) -> Result<(), RecordsError> {
        let outcome = match &mut self.sink {
            Sink::Lines(lines) => lines.take(record, &mut self.written),
            #[cfg(feature = "parquet")]
            Sink::Rows(rows) => rows.take(record, &mut self.written),
        };
        self.told(outcome)
    }

    /// Writes what was kept, of a form that a reader can follow.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn flush(&mut self) -> Result<(), RecordsError> {
        let outcome = match &mut self.sink {
            Sink::Lines(lines) => lines.flush(&mut self.written),
            #[cfg(feature = "parquet")]
            Sink::Rows(_) => Ok(()),
        };
        self.told(outcome)
    }

    /// Records that are written to the end.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Writes all that was kept. Gives how many records were written.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn finish(mut self) -> Result<u64, RecordsError> {
        self.flush()?;
        #[cfg(feature = "parquet")]
        if let Sink::Rows(rows) = &mut self.sink {
            let outcome = rows.finish(&mut self.written);
            self.told(outcome)?;
        }
        Ok(self.written)
    }

    fn told(&self, outcome: io::Result<()>) -> Result<(), RecordsError> {
        outcome.map_err(|e| RecordsError { path: self.path.clone(), reason: Reason::Io(e) })
    }
}

impl Sink {
    fn lines(to: To, bounds: Bounds) -> Sink {
        Sink::Lines(Lines { to, bounds, pending: Vec::new(), records: 0, line: Vec::new() })
    }
}

impl Lines {
    fn take(&mut self, record: &Connection, written: &mut u64) -> io::Result<()> {
        self.line.clear();
        lines::line(record, &mut self.line)?;
        let room = match &self.to {
            To::Files(_, _, bytes) => self.bounds.bytes.saturating_sub(bytes + self.pending.len() as u64),
            _ => u64::MAX,
        };
        if self.line.len() as u64 > room {
            self.flush(written)?;
            // A file has one line at the least.
            if let To::Files(files, file, bytes) = &mut self.to
                && *bytes > 0
            {
                files.turn()?;
                (*file, *bytes) = (Files::create(files.path())?, 0);
            }
        }
        self.pending.extend_from_slice(&self.line);
        self.records += 1;
        if self.pending.len() >= AT_ONCE { self.flush(written) } else { Ok(()) }
    }

    fn flush(&mut self, written: &mut u64) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let length = self.pending.len() as u64;
        let outcome = match &mut self.to {
            To::Stdout(out) => out.write_all(&self.pending).and_then(|()| out.flush()),
            To::Stream(out) => out.write_all(&self.pending),
            To::Files(_, file, bytes) => match file.write_all(&self.pending) {
                Ok(()) => {
                    *bytes += length;
                    Ok(())
                }
                // A line that is cut would be no record. What found room is whole up to the bytes before.
                Err(e) => file.set_len(*bytes).and(Err(e)),
            },
        };
        // Whether they are written or not: they are not tried again.
        self.pending.clear();
        let records = std::mem::take(&mut self.records);
        outcome.inspect(|()| *written += records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::connection;
    use std::fs;

    fn read(path: &Path) -> Vec<Connection> {
        fs::read_to_string(path).unwrap().lines().map(|l| serde_json::from_str(l).unwrap()).collect()
    }

    #[test]
    fn what_is_written_is_read_back_and_names_its_form() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("closed.jsonl");
        let mut writer = Writer::open(&path, Bounds { bytes: 1 << 20, files: 2 }).unwrap();
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
    fn files_take_turns_and_lose_nothing_but_the_eldest() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("closed.jsonl");
        fs::write(&path, "earlier\n").unwrap();
        let mut writer = Writer::open(&path, Bounds { bytes: 5000, files: 4 }).unwrap();
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
    fn a_name_of_no_form_and_a_place_that_is_not_there_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let bounds = Bounds { bytes: 1000, files: 1 };
        for (name, said) in
            [("x.csv", ".jsonl"), ("x", ".jsonl"), ("no/x.jsonl", "No such file"), ("", "directory")]
        {
            let error = Writer::open(&dir.path().join(name), bounds).unwrap_err().to_string();
            assert!(error.contains(said), "{name}: {error}");
        }
        Writer::open(Path::new("/dev/null"), bounds).unwrap().write(&connection(1)).unwrap();
    }
}
