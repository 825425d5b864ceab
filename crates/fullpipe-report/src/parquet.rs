//! Parquet: the rows of the CSV format with typed columns, one row group per run,
//! Snappy-compressed.

use crate::csv::{KEYS, varied_columns};
use crate::reduce::columns;
use fullpipe_experiment::Results;
use fullpipe_experiment::recording::{Recording, Series};
use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use std::io::{self, Write};
use std::sync::Arc;

/// Keys with numbers; all others are text.
const NUMBERS: [&str; 2] = ["run", "seed"];

pub(crate) fn write(results: &Results, out: &mut dyn Write) -> io::Result<()> {
    // The Parquet writer needs a `Send` sink; a report fits in memory.
    let bytes = encode(results).map_err(io::Error::other)?;
    out.write_all(&bytes)
}

fn encode(results: &Results) -> Result<Vec<u8>, ParquetError> {
    let names = columns(results);
    let varied = varied_columns(results);
    let schema = Arc::new(schema(&names, &varied)?);
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_created_by(format!("fullpipe {}", env!("CARGO_PKG_VERSION")))
        .build();
    let mut file = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties))?;
    for (i, run) in results.runs.iter().enumerate() {
        let parts = parts(run);
        if parts.iter().all(|p| p.series.is_empty()) {
            continue;
        }
        let mut group = file.next_row_group()?;
        for key in KEYS {
            let mut column = group.next_column()?.ok_or_else(missing)?;
            match column.untyped() {
                ColumnWriter::Int64ColumnWriter(w) => {
                    let value = if key == "run" { i as i64 + 1 } else { run.seed as i64 };
                    w.write_batch(&vec![value; parts.iter().map(Part::rows).sum()], None, None)?;
                }
                ColumnWriter::ByteArrayColumnWriter(w) => {
                    for part in &parts {
                        let value = ByteArray::from(part.key(run, key));
                        w.write_batch(&vec![value; part.rows()], None, None)?;
                    }
                }
                _ => return Err(missing()),
            }
            column.close()?;
        }
        for name in std::iter::once(&"t_s").chain(&names) {
            let mut column = group.next_column()?.ok_or_else(missing)?;
            let ColumnWriter::DoubleColumnWriter(w) = column.untyped() else { return Err(missing()) };
            for part in &parts {
                if *name == "t_s" {
                    w.write_batch(&part.series.t_s, None, None)?;
                    continue;
                }
                let values = part.series.get(name).unwrap_or_default();
                let known = |row: usize| values.get(row).copied().filter(|v| v.is_finite());
                let levels: Vec<i16> = (0..part.rows()).map(|r| i16::from(known(r).is_some())).collect();
                let values: Vec<f64> = (0..part.rows()).filter_map(known).collect();
                w.write_batch(&values, Some(&levels), None)?;
            }
            column.close()?;
        }
        let rows: usize = parts.iter().map(Part::rows).sum();
        for (_, key) in &varied {
            let mut column = group.next_column()?.ok_or_else(missing)?;
            let ColumnWriter::ByteArrayColumnWriter(w) = column.untyped() else { return Err(missing()) };
            match run.varied(key) {
                Some(value) => {
                    w.write_batch(&vec![ByteArray::from(value); rows], Some(&vec![1; rows]), None)?
                }
                None => w.write_batch(&[], Some(&vec![0; rows]), None)?,
            };
            column.close()?;
        }
        group.close()?;
    }
    file.into_inner()
}

fn missing() -> ParquetError {
    ParquetError::General("the schema and the rows disagree".to_owned())
}

fn schema(names: &[&str], varied: &[(String, String)]) -> Result<Type, ParquetError> {
    let mut fields = Vec::new();
    for key in KEYS {
        let field = if NUMBERS.contains(&key) {
            Type::primitive_type_builder(key, Physical::INT64)
        } else {
            Type::primitive_type_builder(key, Physical::BYTE_ARRAY)
                .with_logical_type(Some(LogicalType::String))
        };
        fields.push(Arc::new(field.with_repetition(Repetition::REQUIRED).build()?));
    }
    let time = Type::primitive_type_builder("t_s", Physical::DOUBLE).with_repetition(Repetition::REQUIRED);
    fields.push(Arc::new(time.build()?));
    for name in names {
        let field =
            Type::primitive_type_builder(name, Physical::DOUBLE).with_repetition(Repetition::OPTIONAL);
        fields.push(Arc::new(field.build()?));
    }
    for (name, _) in varied {
        let field = Type::primitive_type_builder(name, Physical::BYTE_ARRAY)
            .with_logical_type(Some(LogicalType::String));
        fields.push(Arc::new(field.with_repetition(Repetition::OPTIONAL).build()?));
    }
    Type::group_type_builder("recording").with_fields(fields).build()
}

/// The rows of one flow or link.
struct Part<'a> {
    kind: &'static str,
    name: &'a str,
    cc: &'a str,
    series: &'a Series,
}

impl Part<'_> {
    fn rows(&self) -> usize {
        self.series.t_s.len()
    }

    fn key<'a>(&'a self, run: &'a Recording, key: &str) -> &'a str {
        match key {
            "label" => &run.label,
            "engine" => run.source.name(),
            "cc" => self.cc,
            "kind" => self.kind,
            _ => self.name,
        }
    }
}

fn parts(run: &Recording) -> Vec<Part<'_>> {
    let flows = run.flows.iter().map(|f| Part { kind: "flow", name: &f.label, cc: &f.cc, series: &f.series });
    let links =
        run.links.iter().map(|l| Part { kind: "link", name: &l.label, cc: &run.cc, series: &l.series });
    flows.chain(links).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support;
    use fullpipe_experiment::recording::Variation;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    #[test]
    fn values_read_back_and_missing_values_are_null() {
        let mut race = support::race(2.0);
        race.runs[0].varied = vec![Variation::new("path.loss", "1%")];
        let mut out = Vec::new();
        write(&race, &mut out).unwrap();
        let file = tempfile::tempfile().unwrap();
        { &file }.write_all(&out).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        assert_eq!(reader.num_row_groups(), race.runs.len());
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
        let expected: usize =
            race.runs.iter().map(|r| r.flows[0].series.t_s.len() + r.links[0].series.t_s.len()).sum();
        assert_eq!(rows.len(), expected);
        let names: Vec<&String> = rows[0].get_column_iter().map(|(name, _)| name).collect();
        let at = |name: &str| names.iter().position(|n| *n == name).unwrap();
        assert_eq!(rows[0].get_string(at("label")).unwrap(), "bbr");
        assert_eq!(rows[0].get_long(at("run")).unwrap(), 1);
        assert_eq!(rows[0].get_string(at("loss")).unwrap(), "1%");
        assert!(rows[expected - 1].get_string(at("loss")).is_err(), "not varied in the other runs");
        let rtt = race.runs[0].flows[0].series.get("rtt_ms").unwrap();
        assert!(rows[0].get_double(at("rtt_ms")).is_err(), "the first value is missing");
        assert_eq!(rows[1].get_double(at("rtt_ms")).unwrap(), rtt[1]);
        let link = rows.iter().find(|r| r.get_string(at("kind")).unwrap() == "link").unwrap();
        assert!(link.get_double(at("rate_bps")).is_ok());
    }
}
