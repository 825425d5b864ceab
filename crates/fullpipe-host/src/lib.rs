//! Congestion control on a host: examine it ([`checks::examine`]), plan the exact changes
//! ([`plan::make`]), apply them ([`apply::apply`]), show the state ([`status::status`]), and roll
//! back exactly ([`revert::revert`]). Assignments of loaded controllers ([`assign::assign`]),
//! controllers for single destinations ([`destinations::apply`]), splits of new connections
//! ([`split::begin`]) and other kernels ([`kernel`]) are in the same journal.
//!
//! A host is this [machine](host::Machine), or a [model](host::Model) of one under a directory:
//!
//! ```
//! use fullpipe_host::host::{Directory, Files, Host, Model, View};
//! use fullpipe_host::journal::Store;
//! use fullpipe_host::plan::Request;
//! use fullpipe_host::{apply, revert};
//!
//! let root = tempfile::tempdir().unwrap();
//! let write = |path: &str, text: &str| {
//!     let path = root.path().join(path);
//!     std::fs::create_dir_all(path.parent().unwrap()).unwrap();
//!     std::fs::write(path, text).unwrap();
//! };
//! write("kernel.json", r#"{"release": "6.1.0-18-amd64", "loadable": ["tcp_bbr", "sch_fq"],
//!     "qdisc_kinds": ["fq_codel"], "devices": {"eth0": 1},
//!     "qdiscs": [{"device": "eth0", "kind": "fq_codel", "handle": 0, "parent": 4294967295}]}"#);
//! let modules = "kernel/net/ipv4/tcp_bbr.ko:\nkernel/net/sched/sch_fq.ko:\n";
//! write("lib/modules/6.1.0-18-amd64/modules.dep", modules);
//! write("proc/sys/net/ipv4/tcp_available_congestion_control", "reno cubic\n");
//! write("proc/sys/net/ipv4/tcp_allowed_congestion_control", "reno cubic\n");
//! write("proc/sys/net/ipv4/tcp_congestion_control", "cubic\n");
//! write("proc/sys/net/ipv4/tcp_mem", "188319 251094 376638\n");
//! write("proc/sys/net/core/default_qdisc", "fq_codel\n");
//! for directory in ["sys/module", "etc/sysctl.d", "run", "var/lib"] {
//!     std::fs::create_dir_all(root.path().join(directory)).unwrap();
//! }
//!
//! let host = Model::new(Directory::new(root.path()));
//! let store = Store::at("/var/lib/fullpipe");
//! let applied = apply::apply(&host, &store, &Request::new("bbr"), &apply::Options::default()).unwrap();
//! assert_eq!(applied.observed.as_deref(), Some("bbr"));
//! assert_eq!(host.qdiscs().unwrap()[0].kind, "fq");
//! let file = host.text("/etc/sysctl.d/99-zz-fullpipe.conf").unwrap();
//! assert!(file.ends_with("tcp_congestion_control = bbr"));
//!
//! revert::revert(&host, &store, &revert::Options::default()).unwrap();
//! assert_eq!(host.sysctl("net.ipv4.tcp_allowed_congestion_control").unwrap(), "reno cubic");
//! assert!(!host.exists("/etc/sysctl.d/99-zz-fullpipe.conf"));
//! ```
#![forbid(unsafe_code)]

pub mod apply;
pub mod assign;
pub mod boot;
pub mod checks;
pub mod controllers;
pub mod destinations;
pub mod diff;
mod ecn;
mod error;
pub mod facts;
pub mod host;
pub mod journal;
pub mod kernel;
mod names;
pub mod net;
mod os_release;
pub mod plan;
pub mod revert;
pub mod screen;
pub mod split;
pub mod status;
pub mod trial;
pub mod verify;

pub use error::{Error, Result};
