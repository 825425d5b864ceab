//! A mesh of probers: BBR and CUBIC side by side on each path between sites, around the clock.
//!
//! [`mod@file`] describes the sites of a mesh and what they send, [`schedule`] when. A [`node`] is
//! one site: it authenticates itself ([`key`], [`hello`]), exchanges messages ([`message`],
//! [`datagram`]), stays within its [`budget`], and stores its results in a [`store`]. [`record`]
//! defines the records (transfers, probes, routes) and [`export`] writes them for other programs.
//!
//! [`analysis`] compares the controllers and detects changes and their [`location`]: a site, a pair
//! or a direction. [`expect`] simulates what a path should carry, [`report`] presents the results,
//! and [`simulate`] generates the records of a mesh from a description.
//!
//! ```
//! use fullpipe_mesh::file::Mesh;
//! use fullpipe_mesh::schedule::Schedule;
//!
//! let file = r#"
//!     [mesh]
//!     name = "oceans"
//!     key_file = "mesh.key"
//!     [[site]]
//!     name = "lab"
//!     address = "192.0.2.1"
//!     [[site]]
//!     name = "sea"
//!     address = "sea.example.org"
//! "#;
//! let mesh = Mesh::parse("mesh.toml", file)?;
//! let slots = Schedule::new(&mesh).slots(0);
//! assert_eq!(slots.len(), 2 * mesh.controllers.len());
//! # Ok::<(), fullpipe_experiment::document::FileError>(())
//! ```
#![forbid(unsafe_code)]

pub mod analysis;
pub mod budget;
mod channel;
pub mod chunk;
pub mod clock;
pub mod datagram;
pub mod expect;
pub mod export;
pub mod file;
pub mod hello;
pub mod key;
pub mod live;
pub mod location;
pub mod message;
pub mod node;
pub mod record;
pub mod report;
pub mod schedule;
pub mod simulate;
pub mod store;
mod wire;

pub use wire::Malformed;
