//! The integration tests, each module by itself: `cargo test -p fullpipe-trace --test it MODULE::`.

mod capture_faults;
mod connections;
mod controllers;
mod debian_captures;
mod encapsulations;
mod files;
mod hostile_captures;
mod logs;
mod statements;
mod support;
mod waiting;
