//! Connections of QUIC stacks in virtual time.

mod bounds;
mod connections;
mod costs;
mod determinism;
mod random_paths;
mod world;
