//! One way to run scenarios: which engine, many at a time, what becomes of runs that are not valid, and whether the
//! checks of a scenario held.
//!
//! ```
//! use fullpipe_experiment::scenario;
//! use fullpipe_run::{Batch, Engine, Job, vocabulary};
//!
//! let file = r#"
//!     duration = "5s"
//!     [path]
//!     rate = "20mbit"
//!     rtt = "40ms"
//!     [[flow]]
//!     cc = "bbr"
//!     [sweep]
//!     "flow.cc" = ["bbr", "cubic"]
//!     [[check]]
//!     utilization = ">= 80%"
//! "#;
//! let no_files = |name: &str| Err(format!("no file `{name}`"));
//! let cases = scenario::parse("race.toml", file, &vocabulary(&[Engine::Sim]), &no_files)?;
//! let jobs = cases.into_iter().map(|case| Job { engine: Engine::Sim, case }).collect();
//! let outcome = Batch::new(jobs).run(&());
//! assert_eq!(outcome.results.runs.len(), 2);
//! assert!(outcome.results.runs.iter().all(|run| run.checks[0].passed));
//! # Ok::<(), scenario::ScenarioError>(())
//! ```
//!
//! A [`Batch`] says what is run and how; a [`Watch`] hears how far it is and may stop it. There is no terminal here, and
//! nothing of reports. Without the features `threads` and `lab` it runs simulations one after another, wherever Rust
//! does.
#![forbid(unsafe_code)]

mod batch;
mod engine;
mod error;
mod files;
#[cfg(feature = "lab")]
mod lend;
mod parallel;
mod part;
pub mod race;
mod vocabulary;
mod watch;

#[cfg(feature = "lab")]
pub use batch::InRealTime;
pub use batch::{Batch, Job, Outcome};
pub use engine::{Engine, run};
pub use error::RunError;
pub use files::{beside, scenario_text};
#[cfg(feature = "lab")]
pub use lend::{Lend, Nothing, kernel_offers};
pub use parallel::in_parallel;
pub use part::{MergeError, Shard, merge};
pub use vocabulary::vocabulary;
pub use watch::Watch;
