//! The kernel's own BBR as an oracle: recorded callback by callback, kept in a file, and replayed
//! through the cores that must equal it.

mod file;
mod record;
mod recorder;
mod replay;
mod rust_core;

pub use file::{Reader, Writer};
pub use record::Record;
pub use recorder::NAME;
pub use recorder::{Recorder, Summary};
pub use replay::{Core, Difference, Report, c_core, random_that_led_to, replay};
pub use rust_core::rust_core;
