//! Connections of QUIC stacks in virtual time.

mod connections;
mod world;
