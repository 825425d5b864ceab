//! `fullpipe probe export`: writes records as a table.

use crate::failure::Failure;
use fullpipe_mesh::export;
use fullpipe_mesh::message::Table;
use fullpipe_mesh::store::Store;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

/// Export records as Parquet or CSV
#[derive(clap::Args)]
pub struct Args {
    /// Store to read: its directory, or the database file in it
    #[arg(value_name = "STORE", value_hint = clap::ValueHint::AnyPath)]
    store: PathBuf,
    /// File to write, .parquet or .csv; an existing file is overwritten
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    out: PathBuf,
    /// Table to export
    #[arg(long = "what", value_enum, value_name = "TABLE", default_value = "transfers")]
    table: TableName,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum TableName {
    /// One row per transfer
    Transfers,
    /// One row per minute and pair of sites: RTT and loss of the probes sent every second
    Minutes,
    /// One row per route
    Routes,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let table = match self.table {
            TableName::Transfers => Table::Transfers,
            TableName::Minutes => Table::Minutes,
            TableName::Routes => Table::Routes,
        };
        let write = match self.out.extension().and_then(|e| e.to_str()) {
            Some("csv") => export::csv,
            #[cfg(feature = "parquet")]
            Some("parquet") => export::parquet,
            #[cfg(not(feature = "parquet"))]
            Some("parquet") => {
                return Err(Failure::Impossible(
                    "this fullpipe was built without the feature `parquet`".to_owned(),
                ));
            }
            _ => {
                return Err(Failure::usage(format!(
                    "--out {}: the extension must be .parquet or .csv",
                    self.out.display()
                )));
            }
        };
        let store = Store::read(&self.store).map_err(Failure::usage)?;
        let history = store.history(i64::MIN..i64::MAX).map_err(|e| Failure::Impossible(e.to_string()))?;
        let written = fullpipe_files::create(&self.out).and_then(|file| {
            let mut out = BufWriter::new(file);
            write(&export::columns(&history, table), &mut out)?;
            out.flush()
        });
        written.map_err(|e| Failure::usage(format!("--out {}: {e}", self.out.display())))
    }
}
