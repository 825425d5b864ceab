//! Reads records from JSON lines, the document that `fullpipe trace --json` prints, and Parquet.

use super::distributions::Distributions;
use fullpipe_experiment::connection::{Connection, Connections, SCHEMA};
use serde::Deserialize;
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

/// Longest line. No record is this long; a file of another kind must not fill the memory.
const MAX_LINE_BYTES: u64 = 1 << 20;
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

/// Calls `each` for every record of JSON text: one record per line, or one document with all of them.
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
        (&mut source).take(MAX_LINE_BYTES).read_until(b'\n', &mut line).map_err(|e| e.to_string())?;
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
                let all: Connections =
                    serde_json::from_reader(rest).map_err(|e| format!("it contains no records: {e}"))?;
                if all.schema != SCHEMA {
                    return Err(format!("its schema is {}; records have {SCHEMA}", all.schema));
                }
                all.connections.iter().for_each(&mut each);
                found.connections = all.connections.len() as u64;
                return Ok(found);
            }
            Err(e) if e.is_eof() && !is_whole && (line.len() as u64) < MAX_LINE_BYTES => {
                found.cut = true;
                break;
            }
            Err(e) => return Err(format!("line {number}, column {}: not a record: {e}", e.column())),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{GroupBy, Rotation, Writer};
    use crate::support::connection;

    fn written(name: &str) -> Distributions {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        let mut writer = Writer::open(&path, Rotation { bytes: 1 << 20, files: 1 }).unwrap();
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
