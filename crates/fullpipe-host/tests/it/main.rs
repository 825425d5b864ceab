//! The integration tests, each module by itself: `cargo test -p fullpipe-host --test it MODULE::`.

mod attributes;
mod boot_programs;
mod boot_readers;
mod corpus;
mod crashes;
mod edits;
mod hostile_images;
mod kernel;
mod namespace;
mod random_hosts;
mod reused_namespaces;
mod support;
mod trial;
mod uses;
