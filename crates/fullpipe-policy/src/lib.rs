//! Congestion controllers that were trained: what a policy sees each step, the small network that decides, the window
//! and the pacing rate that follow.
//!
//! ```
//! use fullpipe_policy::{Network, Pilot, Step};
//! use fullpipe_units::Span;
//!
//! // Half a step up, whatever it sees.
//! let network = r#"{ "schema": "fullpipe/policy/1", "action": "multiplier", "activation": "tanh",
//!                    "layers": [{ "weights": [[0, 0, 0, 0, 0, 0, 0, 0]], "bias": [0.5] }] }"#;
//! let network: Network = network.parse()?;
//! let mut pilot = Pilot::new(network, 14_480, 1448);
//! let seen = Step { took: Span::from_millis(40), sent: 14_480, acked: 14_480, ..Step::default() };
//! assert_eq!(pilot.decide(&seen).window, 20_477); // 14 480 · √2
//! # Ok::<(), fullpipe_policy::NetworkError>(())
//! ```
//!
//! All arithmetic is that of IEEE 754 and of `libm`'s functions in Rust: the same file and seed decide the same
//! everywhere.
#![forbid(unsafe_code)]

mod account;
mod network;
mod observer;
mod pilot;
mod steered;

pub use account::{Account, Step};
pub use network::{Action, Activation, Layer, MOST_WEIGHTS, Network, NetworkError};
pub use observer::{OBSERVATIONS, Observer};
pub use pilot::{LEAST_WINDOW, MOST_WINDOW, Orders, Pilot, multiplied, paced};
pub use steered::Steered;
