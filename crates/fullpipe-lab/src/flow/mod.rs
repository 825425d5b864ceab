//! The scenario's connections: kernel sockets in both ends, and applications that write and read.

mod connection;
mod desk;
mod endpoint;
mod sampler;
mod source;
mod steering;

pub(crate) use connection::{Connection, Outset};
pub(crate) use desk::Desk;
pub(crate) use endpoint::Endpoint;
pub(crate) use sampler::{FlowReport, Sampler};
pub(crate) use steering::Steering;
