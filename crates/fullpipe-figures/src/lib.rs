//! Published BBR results: each with a scenario file, a check, and a plot in the style of the
//! original.
//!
//! A [`Figure`] contains its scenarios and claims; an engine runs the scenarios; the [`Outcome`]
//! has for each claim the published value, the measured value, and whether the claim holds.
//!
//! ```
//! use fullpipe_figures::{FIGURES, find};
//!
//! let figure = find("fig8").unwrap();
//! assert!(figure.title.contains("loss"));
//! let runs = figure.cases().unwrap();
//! assert!(runs.len() > 20, "three controllers at many loss rates");
//! assert!(FIGURES.len() >= 18);
//! ```
#![forbid(unsafe_code)]

mod chapter;
mod figure;
mod figures;
mod page;
mod view;

pub use figure::{Agreement, Figure, Finding, Outcome, Runs, find, unknown_figure};
pub use figures::FIGURES;
pub use page::{page, tally};
