//! Reports of [`Results`](fullpipe_experiment::Results): a table for the terminal, a self-contained
//! HTML file, pictures (PNG, SVG), and JSON, CSV, Parquet and qlog.
//!
//! The crate does not know how a run was made: every sentence is computed from the recorded
//! figures.
//!
//! ```
//! use fullpipe_experiment::Results;
//! use fullpipe_report::{About, Format, table, verdict};
//!
//! let run = |cc: &str, bps: f64| serde_json::from_value(serde_json::json!({
//!     "label": cc, "engine": "sim", "cc": cc, "seed": 1, "valid": true,
//!     "summary": {
//!         "duration_s": 30.0, "goodput_bps": bps, "utilization": bps / 96.5e6,
//!         "bytes_delivered": (bps * 30.0 / 8.0) as u64, "packets_sent": 1000,
//!         "packets_retransmitted": 10, "packets_lost": 10, "completion_s": null,
//!         "rtt_ms": { "min": 100.0, "p50": 104.0, "p95": 120.0, "p99": 125.0 },
//!         "queue_ms": { "p50": 4.0, "p95": 20.0, "max": 25.0 },
//!     },
//!     "flows": [],
//!     "path": { "description": "100 Mbit/s, 100 ms", "goodput_limit_bps": 96.5e6 },
//!     "provenance": { "version": "0.1.0", "scenario": "" },
//! })).unwrap();
//! let results = Results::new(vec![run("bbr", 92.4e6), run("cubic", 2.4e6)]);
//!
//! assert!(verdict(&results).starts_with("bbr carried 92.4 Mbit/s, 38 times cubic's 2.40 Mbit/s"));
//! print!("{}", table(&results, &table::Style { width: 80, colour: false }));
//!
//! let mut page = Vec::new();
//! let about = About { title: "100 Mbit/s with losses".into(), command: "fullpipe race".into() };
//! Format::Html.write(&results, &about, &mut page).unwrap();
//! assert!(page.starts_with(b"<!doctype html>"));
//! ```
#![forbid(unsafe_code)]

mod comparison;
mod csv;
mod format;
mod html;
mod notes;
#[cfg(feature = "files")]
mod output;
#[cfg(feature = "parquet")]
mod parquet;
pub mod picture {
    //! Plots as SVG and PNG, and those of recordings.

    mod race;
    mod sweep;

    pub use fullpipe_presentation::picture::*;
    pub use race::race_picture;
    pub use sweep::sweep_picture;
}
mod qlog;
#[cfg(feature = "files")]
pub mod records;
mod reduce;
mod summary;
#[cfg(feature = "terminal")]
pub mod table;
mod verdict;

#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;

pub use comparison::comparison_text;
pub use format::{Format, UnknownFormat};
pub use fullpipe_presentation::numbers::{millis, percent, rate, seconds, wrap_text};
pub use fullpipe_presentation::page::About;
#[cfg(feature = "files")]
pub use fullpipe_presentation::page::{PlottedPage, write_page, write_plotted_page};
pub use fullpipe_presentation::palette::{Colour, controller_colour};
pub use fullpipe_presentation::picture::escape_html;
#[cfg(feature = "sequence")]
pub use html::write_capture;
#[cfg(feature = "files")]
pub use output::{AtomicFile, Output, OutputError};
#[cfg(feature = "terminal")]
pub use table::table;
pub use verdict::{problems, verdict};
