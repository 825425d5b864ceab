//! The published results on BBR: each a scenario file, a check, and a plot drawn like the original.
//!
//! A [`Figure`] knows its scenarios and what must be seen in them; an engine runs them; the
//! [`Outcome`] says for each claim what was published, what was measured here, and whether it holds.
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
