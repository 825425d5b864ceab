//! Standing probers between sites: BBR and CUBIC side by side on each path, all day.
//!
//! [`mod@file`] says who is in a mesh and what they send each other, [`schedule`] when. A [`node`] is one site of it: it proves itself
//! ([`key`], [`hello`]), speaks ([`message`], [`datagram`]), moves no more than its [`budget`], and keeps what it saw in a [`store`].
//! [`record`] is what it tells: transfers, probes between them, routes; [`export`] writes it for other programs.
//!
//! What the records say is in [`see`]: how the controllers compare, and what changed since when, at a [`place`]: a site, a pair, a direction.
//! [`expect`] says what a path should give, [`report`] shows all of it, and [`simulate`] makes the records of a mesh that is not there.
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

pub mod budget;
mod channel;
pub mod clock;
pub mod datagram;
pub mod expect;
pub mod export;
pub mod file;
pub mod hello;
pub mod key;
pub mod message;
pub mod node;
pub mod place;
pub mod record;
pub mod report;
pub mod schedule;
pub mod see;
pub mod simulate;
pub mod store;
mod wire;

pub use wire::Malformed;
