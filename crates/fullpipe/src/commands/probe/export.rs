//! `fullpipe probe export`: records as a table in a file.

use crate::failure::Failure;
use fullpipe_mesh::export;
use fullpipe_mesh::message::Table;
use fullpipe_mesh::store::Store;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

/// Write records as Parquet or CSV, by the file's extension
#[derive(clap::Args)]
pub struct Args {
    /// Directory or file of a store
    #[arg(value_name = "STORE", value_hint = clap::ValueHint::AnyPath)]
    store: PathBuf,
    /// The file to write
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    out: PathBuf,
    /// Which records
    #[arg(long, value_enum, default_value = "transfers")]
    what: What,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum What {
    /// A row a transfer
    Transfers,
    /// A row a minute of small probes
    Minutes,
    /// A row a route
    Routes,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let table = match self.what {
            What::Transfers => Table::Transfers,
            What::Minutes => Table::Minutes,
            What::Routes => Table::Routes,
        };
        let write = match self.out.extension().and_then(|e| e.to_str()) {
            Some("csv") => export::csv,
            #[cfg(feature = "parquet")]
            Some("parquet") => export::parquet,
            #[cfg(not(feature = "parquet"))]
            Some("parquet") => {
                return Err(Failure::Impossible(
                    "this program was built without the feature parquet".to_owned(),
                ));
            }
            _ => {
                return Err(Failure::usage(format!(
                    "--out {}: end it in .parquet or .csv",
                    self.out.display()
                )));
            }
        };
        let store = Store::read(&self.store).map_err(Failure::usage)?;
        let history = store.history(i64::MIN..i64::MAX).map_err(|e| Failure::Impossible(e.to_string()))?;
        let written = File::create(&self.out).and_then(|file| {
            let mut out = BufWriter::new(file);
            write(&export::columns(&history, table), &mut out)?;
            out.flush()
        });
        written.map_err(|e| Failure::usage(format!("--out {}: {e}", self.out.display())))
    }
}
