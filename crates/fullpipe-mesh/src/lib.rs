//! Standing probers between sites: BBR and CUBIC side by side on each path, all day.
//!
//! [`file`] says who is in a mesh and what they send each other, [`schedule`] when. [`record`] is what it tells: transfers, probes
//! between them, routes.
#![forbid(unsafe_code)]

pub mod file;
pub mod record;
pub mod schedule;
