//! Writes a report of synthetic results in the format of the file extension:
//! `cargo run -p fullpipe-report --example synthetic -- report.html`.

#[path = "../tests/support/mod.rs"]
mod support;

use fullpipe_report::{About, Output, table};
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let about = About { title: "Synthetic race".into(), command: String::new() };
    let results = support::race(30.0);
    for path in std::env::args().skip(1) {
        Output::open(Path::new(&path))?.write(&results, &about)?;
    }
    print!("{}", table(&results, &table::Style { width: 80, colour: false }));
    Ok(())
}
