//! Records from files: lines of JSON, what `fullpipe trace --json` prints, Parquet.

use super::distributions::Distributions;
use fullpipe_experiment::connection::{Connection, Connections, SCHEMA};
use serde::Deserialize;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// Why records cannot be read: the file, the place and the reason.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {name}: {reason}")]
pub struct ReadError {
    name: String,
    reason: String,
}

/// What was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// Connections.
    pub connections: u64,
    /// Whether the last line was cut: whoever wrote it was killed.
    pub cut: bool,
}

/// No record is as long; a file that is none must not fill the memory.
const LONGEST: u64 = 1 << 20;
/// The same of a document that holds all of them.
const LONGEST_DOCUMENT: u64 = 1 << 30;

/// Adds the records of the file at `path` (`-` is standard input) to `all`.
///
/// # Errors
/// What cannot be opened, and what is no record, with its line.
pub fn read(path: &Path, all: &mut Distributions) -> Result<Found, ReadError> {
    let stdin = path.as_os_str() == "-";
    let name = if stdin { "standard input".to_owned() } else { path.display().to_string() };
    let fail = |reason: String| ReadError { name: name.clone(), reason };
    let add = |record: &Connection| all.add(record);
    if stdin {
        return lines(io::stdin().lock(), add).map_err(fail);
    }
    let mut file = File::open(path).map_err(|e| fail(e.to_string()))?;
    let mut first = [0; 4];
    let begins = file.read(&mut first).map_err(|e| fail(e.to_string()))?;
    if first == *b"PAR1" {
        #[cfg(feature = "parquet")]
        return super::parquet::read(file, |seen| all.add_seen(&seen)).map_err(fail);
        #[cfg(not(feature = "parquet"))]
        return Err(fail("it is Parquet, which is not built in: add --features parquet".to_owned()));
    }
    lines(BufReader::new(first[..begins].chain(file)), add).map_err(fail)
}

/// Hands the records of JSON text to `each`: a line each, or one document of all.
///
/// # Errors
/// What is wrong with it, and where.
pub fn lines(mut source: impl BufRead, mut each: impl FnMut(&Connection)) -> Result<Found, String> {
    #[derive(Deserialize)]
    struct Head {
        schema: Option<String>,
    }
    let mut found = Found::default();
    let mut line = Vec::new();
    for number in 1u64.. {
        line.clear();
        (&mut source).take(LONGEST).read_until(b'\n', &mut line).map_err(|e| e.to_string())?;
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
            return Err(format!("line {number} is of the form {schema}; records are of {SCHEMA}"));
        }
        match serde_json::from_slice::<Connection>(&line) {
            Ok(record) => {
                each(&record);
                found.connections += 1;
            }
            // A document of all connections has none in its first line, or all.
            Err(_) if number == 1 => {
                let rest = io::Cursor::new(line).chain(source).take(LONGEST_DOCUMENT);
                let all: Connections =
                    serde_json::from_reader(rest).map_err(|e| format!("it holds no records: {e}"))?;
                if all.schema != SCHEMA {
                    return Err(format!("it is of the form {}; records are of {SCHEMA}", all.schema));
                }
                all.connections.iter().for_each(&mut each);
                found.connections = all.connections.len() as u64;
                return Ok(found);
            }
            Err(e) if e.is_eof() && !is_whole && (line.len() as u64) < LONGEST => {
                found.cut = true;
                break;
            }
            Err(e) => return Err(format!("line {number}, column {}: it is no record: {e}", e.column())),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{Bounds, By, Writer};
    use crate::support::connection;

    fn written(name: &str) -> Distributions {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        let mut writer = Writer::open(&path, Bounds { bytes: 1 << 20, files: 1 }).unwrap();
        (1..=50).for_each(|n| writer.write(&connection(n)).unwrap());
        writer.finish().unwrap();
        let mut all = Distributions::default();
        assert_eq!(read(&path, &mut all).unwrap(), Found { connections: 50, cut: false });
        all
    }

    #[test]
    fn every_form_gives_the_same_distributions() {
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
            assert_eq!(lines(text.as_bytes(), |c| all.add(c)).unwrap().connections, 50);
            assert_eq!(all, direct);
        }
        assert_eq!(direct.groups(By::Controller).len(), 2);
    }

    #[test]
    fn a_last_line_that_is_cut_is_told_and_anything_else_is_an_error() {
        let line = serde_json::to_string(&connection(1)).unwrap();
        let read = |text: &str| {
            let mut count = 0;
            lines(text.as_bytes(), |_| count += 1).map(|found| (found.connections, found.cut, count))
        };
        assert_eq!(read(&format!("{line}\n{}", &line[..200])), Ok((1, true, 1)));
        assert_eq!(read(""), Ok((0, false, 0)));
        assert_eq!(read(&format!("{line}\n\n{line}")), Ok((2, false, 2)));
        for (text, said) in [
            (format!("{line}\nnonsense\n{line}\n"), "line 2"),
            (format!("{line}\n{}\n", &line[..200]), "line 2"),
            ("{\"schema\":\"fullpipe/watch/1\"}\n".to_owned(), "fullpipe/watch/1"),
            ("no json".to_owned(), "holds no records"),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
