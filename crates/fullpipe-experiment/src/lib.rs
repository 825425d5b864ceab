//! The contract between engines and reports: a [`Scenario`] goes into an engine, a
//! [`Recording`] comes out, and neither side depends on the other.
//!
//! ```
//! use fullpipe_experiment::{Vocabulary, scenario};
//!
//! let file = r#"
//!     duration = "10s"
//!     [path]
//!     rate = "100mbit"
//!     rtt = "40ms"
//!     loss = "1%"
//!     [[flow]]
//!     cc = "bbr"
//!     [sweep]
//!     "flow.cc" = ["bbr", "cubic"]
//! "#;
//! let known = Vocabulary::new(["bbr", "cubic"]);
//! let no_files = |name: &str| Err(format!("no file `{name}`"));
//! let runs = scenario::parse("race.toml", file, &known, &no_files)?;
//! assert_eq!(runs.len(), 2);
//! assert_eq!(runs[1].label(), "cubic");
//!
//! let typo = file.replace("rtt", "rtd");
//! let error = scenario::parse("race.toml", &typo, &known, &no_files).unwrap_err();
//! assert_eq!((error.line, error.column), (5, 5));
//! assert_eq!(error.help.as_deref(), Some("did you mean `rtt`?"));
//! # Ok::<(), fullpipe_experiment::ScenarioError>(())
//! ```
#![forbid(unsafe_code)]

pub mod calendar;
pub mod connection;
pub mod document;
pub mod format_number;
pub mod recording;
pub mod regular_file;
pub mod scenario;
pub mod statistics;

pub use recording::{Recording, Results, SCHEMA, Source};
pub use scenario::{Case, Scenario, ScenarioError, Vocabulary};
