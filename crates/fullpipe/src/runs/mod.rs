//! From the runs that a command asks for to what it prints and writes: shared by every command that
//! runs scenarios.

mod batch;
mod engine;
mod input;
mod interrupt;
#[cfg_attr(not(feature = "ebpf"), path = "nothing_lent.rs")]
mod lent;
mod reporting;
mod turns;

pub use batch::{AGAIN, Batch, InRealTime, Job};
pub use engine::{Choice, kernel_offers};
pub use input::{check_controller, read, vocabulary};
pub use lent::reenter;
pub use reporting::Reporting;
