//! Trained congestion controllers: the observation of each step, the small neural network that
//! decides, and the resulting window and pacing rate.
//!
//! ```
//! use fullpipe_policy::{Network, Agent, Step};
//! use fullpipe_units::Span;
//!
//! // Half a step up for every observation.
//! let network = r#"{ "schema": "fullpipe/policy/1", "action": "multiplier", "activation": "tanh",
//!                    "layers": [{ "weights": [[0, 0, 0, 0, 0, 0, 0, 0]], "bias": [0.5] }] }"#;
//! let network: Network = network.parse()?;
//! let mut agent = Agent::new(network, 14_480, 1448);
//! let step = Step { duration: Span::from_millis(40), sent: 14_480, acked: 14_480, ..Step::default() };
//! assert_eq!(agent.decide(&step).window, 20_477); // 14 480 · √2
//! # Ok::<(), fullpipe_policy::NetworkError>(())
//! ```
//!
//! All arithmetic is IEEE 754 with `libm`'s functions in Rust, so the same file and seed give the
//! same decisions on every machine.
#![forbid(unsafe_code)]

mod agent;
mod controller;
mod network;
mod observer;
mod totals;

pub use agent::{Agent, Decision, MAX_WINDOW, MIN_WINDOW, pacing_rate_for, scaled_window};
pub use controller::PolicyController;
pub use network::{Action, Activation, Layer, MAX_WEIGHTS, Network, NetworkError};
pub use observer::{OBSERVATIONS, Observer};
pub use totals::{Step, StepTotals};
