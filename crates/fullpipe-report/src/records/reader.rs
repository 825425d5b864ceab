//! Reads records from JSON lines, the document that `fullpipe trace --json` prints, and Parquet.

use super::distributions::Distributions;
use fullpipe_experiment::connection::{Connection, SCHEMA};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// Records could not be read: the file, the position and the reason.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {name}: {reason}")]
pub struct ReadError {
    name: String,
    reason: String,
}

/// What was read from a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadSummary {
    /// Number of connections.
    pub connections: u64,
    /// Whether the last line is incomplete, as after the writing process was killed.
    pub cut: bool,
}

/// Longest record, as a line or in a document. A record of `fullpipe trace --json --out` has up to 2
/// MB; a file of another kind must not fill the memory, of which a record takes up to ten times as
/// much.
const MAX_RECORD_BYTES: u64 = 4 << 20;
/// Longest document with all connections.
const MAX_DOCUMENT_BYTES: u64 = 1 << 30;

/// Adds the records of the file at `path` (`-` is standard input) to `all`.
///
/// # Errors
/// The file cannot be opened, or a line is not a record.
pub fn read(path: &Path, all: &mut Distributions) -> Result<ReadSummary, ReadError> {
    let stdin = path.as_os_str() == "-";
    let name = if stdin { "standard input".to_owned() } else { path.display().to_string() };
    let fail = |reason: String| ReadError { name: name.clone(), reason };
    let add = |record: &Connection| all.add(record);
    if stdin {
        return read_lines(io::stdin().lock(), add).map_err(fail);
    }
    let mut file = File::open(path).map_err(|e| fail(e.to_string()))?;
    let mut first = [0; 4];
    let begins = file.read(&mut first).map_err(|e| fail(e.to_string()))?;
    if first == *b"PAR1" {
        #[cfg(feature = "parquet")]
        return super::parquet::read(file, |sample| all.add_sample(&sample)).map_err(fail);
        #[cfg(not(feature = "parquet"))]
        return Err(fail("this build cannot read Parquet (build with `--features parquet`)".to_owned()));
    }
    read_lines(BufReader::new(first[..begins].chain(file)), add).map_err(fail)
}

/// Calls `each` for every record of JSON text: one record per line, or one document with all of
/// them.
///
/// # Errors
/// The text is not a list of records; the message names the line.
pub fn read_lines(
    mut source: impl BufRead,
    mut each: impl FnMut(&Connection),
) -> Result<ReadSummary, String> {
    #[derive(Deserialize)]
    struct Head {
        schema: Option<String>,
    }
    let mut found = ReadSummary::default();
    let mut line = Vec::new();
    for number in 1u64.. {
        line.clear();
        (&mut source).take(MAX_RECORD_BYTES).read_until(b'\n', &mut line).map_err(|e| e.to_string())?;
        if line.is_empty() {
            break;
        }
        let is_whole = line.ends_with(b"\n");
        if line.trim_ascii().is_empty() {
            continue;
        }
        if found.connections == 0
            && let Ok(head) = serde_json::from_slice::<Head>(&line)
            && let Some(schema) = head.schema.filter(|schema| schema != SCHEMA)
        {
            return Err(format!("line {number} has the schema {schema}; records have {SCHEMA}"));
        }
        match serde_json::from_slice::<Connection>(&line) {
            Ok(record) => {
                each(&record);
                found.connections += 1;
            }
            // The first line of a document is not a record, or holds the whole document.
            Err(_) if number == 1 => {
                let rest = io::Cursor::new(line).chain(source).take(MAX_DOCUMENT_BYTES);
                found.connections = read_document(rest, &mut each)?;
                return Ok(found);
            }
            Err(e) if e.is_eof() && !is_whole && (line.len() as u64) < MAX_RECORD_BYTES => {
                found.cut = true;
                break;
            }
            Err(e) => return Err(format!("line {number}, column {}: not a record: {e}", e.column())),
        }
    }
    Ok(found)
}

/// Calls `each` for every record of a document with all of them, while it is read: one record is in
/// memory at a time.
fn read_document(source: impl Read, each: &mut dyn FnMut(&Connection)) -> Result<u64, String> {
    let left = Cell::new(MAX_RECORD_BYTES);
    let mut document = Document { schema: None, has_records: false, count: 0, left: &left, each };
    let mut json = serde_json::Deserializer::from_reader(Metered { source, left: &left });
    let outcome = json.deserialize_map(&mut document).and_then(|()| json.end());
    if let Some(schema) = document.schema.filter(|schema| schema != SCHEMA) {
        return Err(format!("its schema is {schema}; records have {SCHEMA}"));
    }
    outcome.map_err(|e| format!("it contains no records: {e}"))?;
    Ok(document.count)
}

/// A source that fails after `left` bytes.
struct Metered<'a, R> {
    source: R,
    left: &'a Cell<u64>,
}

impl<R: Read> Read for Metered<'_, R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let left = self.left.get();
        if left == 0 {
            return Err(io::Error::other(format!("a record has more than {} MiB", MAX_RECORD_BYTES >> 20)));
        }
        let length = out.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let n = self.source.read(&mut out[..length])?;
        self.left.set(left - n as u64);
        Ok(n)
    }
}

/// A document that is being read.
struct Document<'a> {
    schema: Option<String>,
    has_records: bool,
    count: u64,
    /// Bytes that the next record may have.
    left: &'a Cell<u64>,
    each: &'a mut dyn FnMut(&Connection),
}

impl<'de> Visitor<'de> for &mut Document<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with connections")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        use serde::de::Error as _;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "schema" => {
                    let schema = self.schema.insert(map.next_value()?);
                    if schema != SCHEMA {
                        return Err(M::Error::custom("another schema"));
                    }
                }
                "connections" => {
                    self.has_records = true;
                    map.next_value_seed(Records(self))?;
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        match (&self.schema, self.has_records) {
            (None, _) => Err(M::Error::missing_field("schema")),
            (Some(_), false) => Err(M::Error::missing_field("connections")),
            (Some(_), true) => Ok(()),
        }
    }
}

/// The list of records of a document.
struct Records<'a, 'b>(&'a mut Document<'b>);

impl<'de> DeserializeSeed<'de> for Records<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Records<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of connections")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<(), S::Error> {
        while let Some(record) = list.next_element::<Connection>()? {
            (self.0.each)(&record);
            self.0.count += 1;
            self.0.left.set(MAX_RECORD_BYTES);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{GroupBy, Rotation, Writer};
    use crate::support::connection;
    use fullpipe_experiment::connection::Connections;

    fn written(name: &str) -> Distributions {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        let mut writer = Writer::open(&path, Rotation { bytes: 1 << 20, files: 1 }, &|| false).unwrap();
        (1..=50).for_each(|n| writer.write(&connection(n)).unwrap());
        writer.finish().unwrap();
        let mut all = Distributions::default();
        assert_eq!(read(&path, &mut all).unwrap(), ReadSummary { connections: 50, cut: false });
        all
    }

    #[test]
    fn every_format_gives_the_same_distributions() {
        let mut direct = Distributions::default();
        (1..=50).for_each(|n| direct.add(&connection(n)));
        assert_eq!(written("x.jsonl"), direct);
        #[cfg(feature = "parquet")]
        assert_eq!(written("x.parquet"), direct);
        let document = Connections::new((1..=50).map(connection).collect());
        for text in
            [serde_json::to_string(&document).unwrap(), serde_json::to_string_pretty(&document).unwrap()]
        {
            let mut all = Distributions::default();
            assert_eq!(read_lines(text.as_bytes(), |c| all.add(c)).unwrap().connections, 50);
            assert_eq!(all, direct);
        }
        assert_eq!(direct.groups(GroupBy::Controller).len(), 2);
    }

    /// Gives a document piece by piece and counts the bytes that were read.
    struct Pieces<'a> {
        pieces: Box<dyn Iterator<Item = Vec<u8>> + 'a>,
        piece: Vec<u8>,
        at: usize,
        given: &'a Cell<usize>,
    }

    impl Read for Pieces<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            if self.at == self.piece.len() {
                (self.piece, self.at) = (self.pieces.next().unwrap_or_default(), 0);
            }
            let n = out.len().min(self.piece.len() - self.at);
            out[..n].copy_from_slice(&self.piece[self.at..self.at + n]);
            self.at += n;
            self.given.set(self.given.get() + n);
            Ok(n)
        }
    }

    #[test]
    fn records_of_a_document_are_counted_while_it_is_read() {
        let record = serde_json::to_vec(&connection(1)).unwrap();
        let head = format!("{{\n\"schema\":\"{SCHEMA}\",\"more\":[1,{{}}],\"connections\":[").into_bytes();
        let list = (0..2000).map(|n| if n == 0 { record.clone() } else { [b",", &record[..]].concat() });
        let pieces = Box::new([head].into_iter().chain(list).chain([b"]}".to_vec()]));
        let given = Cell::new(0);
        let source = Pieces { pieces, piece: Vec::new(), at: 0, given: &given };
        let mut first_at = None;
        let found = read_lines(BufReader::new(source), |_| {
            first_at.get_or_insert(given.get());
        });
        assert_eq!(found.unwrap().connections, 2000);
        let (first, all) = (first_at.unwrap(), given.get());
        assert!(first < all / 20, "the first of 2000 records came after {first} of {all} bytes");
    }

    #[test]
    fn record_of_any_length_in_a_document_is_refused_without_reading_it() {
        let mut record = serde_json::to_string(&connection(1)).unwrap();
        assert_eq!(record.pop(), Some('}'));
        // A list of empty notes takes eight times as much memory as text.
        let head =
            format!("{{\n\"schema\":\"{SCHEMA}\",\"connections\":[{record}}},{record},\"notes\":[\"\"");
        let endless = std::iter::repeat_with(|| b",\"\"".repeat(1000)).take(100_000);
        let pieces = Box::new([head.into_bytes()].into_iter().chain(endless));
        let given = Cell::new(0);
        let source = Pieces { pieces, piece: Vec::new(), at: 0, given: &given };
        let mut count = 0;
        let error = read_lines(BufReader::new(source), |_| count += 1).unwrap_err();
        assert!(error.contains("a record has more than 4 MiB"), "{error}");
        assert!(count == 1 && given.get() < 6 << 20, "{count} records, {} bytes", given.get());
    }

    #[test]
    fn damaged_documents_are_errors() {
        let document = serde_json::to_string_pretty(&Connections::new(vec![connection(1)])).unwrap();
        for (text, expected) in [
            (document.replace(SCHEMA, "fullpipe/watch/1"), "fullpipe/watch/1"),
            (document[..document.len() - 10].to_owned(), "contains no records"),
            (format!("{document} 7"), "trailing"),
            ("{\n\"connections\":[]}".to_owned(), "schema"),
            (format!("{{\n\"schema\":\"{SCHEMA}\"}}"), "connections"),
        ] {
            let error = read_lines(text.as_bytes(), |_| ()).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn incomplete_last_line_is_reported_and_other_damage_is_an_error() {
        let line = serde_json::to_string(&connection(1)).unwrap();
        let read = |text: &str| {
            let mut count = 0;
            read_lines(text.as_bytes(), |_| count += 1).map(|found| (found.connections, found.cut, count))
        };
        assert_eq!(read(&format!("{line}\n{}", &line[..200])), Ok((1, true, 1)));
        assert_eq!(read(""), Ok((0, false, 0)));
        assert_eq!(read(&format!("{line}\n\n{line}")), Ok((2, false, 2)));
        for (text, expected) in [
            (format!("{line}\nnonsense\n{line}\n"), "line 2"),
            (format!("{line}\n{}\n", &line[..200]), "line 2"),
            ("{\"schema\":\"fullpipe/watch/1\"}\n".to_owned(), "fullpipe/watch/1"),
            ("no json".to_owned(), "contains no records"),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
