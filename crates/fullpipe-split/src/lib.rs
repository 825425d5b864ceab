#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod assign;
mod bias;
mod by;
mod comparison;
mod effect;
mod error;
mod guard;
mod join;
mod joined;
mod ledger;
mod lines;
mod metric;
mod outcome;
mod overlap;
mod page;
mod plan;
mod report;
mod rows;
pub mod session;
pub mod stats;
mod text;
mod verdict;

pub use assign::{Assigner, cuts, pick};
pub use bias::{Bias, Level, Point};
pub use by::AssignBy;
pub use comparison::Comparison;
pub use effect::{Effect, Estimate};
pub use error::SplitError;
pub use guard::{Bound, Guard, Violation};
pub use join::Log;
pub use joined::{Joined, JoinedFigure};
pub use ledger::{Contrast, Ledger, Spread, Statistic};
pub use lines::{Counts, Line, MAX_LINE_BYTES, Period, Reader, SCHEMA, Writer};
pub use metric::Metric;
pub use outcome::Outcome;
pub use overlap::Overlap;
pub use page::page;
pub use plan::{Arm, Arms, MAX_ARMS, Plan};
pub use report::{ArmReport, Group, Report, Simulated};
pub use text::terminal;
