//! Standing probers between sites: BBR and CUBIC side by side on each path, all day.
//!
//! [`record`] is what a mesh tells: transfers, probes between them, routes.
#![forbid(unsafe_code)]

pub mod record;
