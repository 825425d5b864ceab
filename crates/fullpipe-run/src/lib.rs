//! Runs scenarios: chooses the engine, runs batches in parallel, repeats invalid runs, and judges a
//! scenario's checks.
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
//! A [`Batch`] is the runs and how to make them; a [`Monitor`] receives progress and can stop the
//! batch. The crate prints nothing and knows no reports. Without the features `threads` and `lab`
//! it runs simulations one after another, on any target that Rust supports.
#![forbid(unsafe_code)]

#[cfg(feature = "lab")]
pub mod agreement;
mod batch;
#[cfg(feature = "lab")]
mod counterpart;
#[cfg(feature = "ebpf")]
pub mod ebpf;
mod engine;
mod error;
#[cfg(all(feature = "exec", target_os = "linux"))]
pub mod exec;
mod files;
#[cfg(feature = "lab")]
mod loader;
mod monitor;
mod parallel;
mod part;
mod programs;
pub mod race;
mod stacks;
mod vocabulary;

#[cfg(feature = "lab")]
pub use batch::LabOptions;
pub use batch::{Batch, Job, Outcome};
#[cfg(feature = "lab")]
pub use counterpart::BbrVersions;
pub use engine::{Engine, run, simulate};
pub use error::RunError;
pub use files::{files_in, read_scenario};
#[cfg(feature = "lab")]
pub use loader::{ControllerLoader, NoLoader, kernel_offers};
pub use monitor::{Monitor, Repeat};
pub use parallel::in_parallel;
pub use part::{MergeError, Shard, merge};
pub use programs::split_settings;
pub use stacks::quic_controllers;
pub use vocabulary::{check_controller, vocabulary};
