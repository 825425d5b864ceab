//! The scenario's connections: kernel sockets in both ends, and applications that write and read.

mod connection;
mod endpoint;
mod registry;
mod sampler;
mod source;
mod steering;

pub(crate) use connection::{Connection, StartOptions};
pub(crate) use endpoint::Endpoint;
pub(crate) use registry::Registry;
pub(crate) use sampler::{FlowReport, Sampler};
pub(crate) use steering::Steering;
