//! The tests of the program, each module by itself:
//! `cargo test -p fullpipe --features full --test cli MODULE::`.

#![cfg_attr(not(feature = "full"), allow(dead_code, unused_imports))]

mod again_in_the_lab;
#[cfg(feature = "ebpf")]
mod bbr3_adaptations;
mod busy;
#[cfg(feature = "ebpf")]
mod cc;
#[cfg(feature = "ebpf")]
mod cc_initial_window;
#[cfg(feature = "ebpf")]
mod cc_settings;
#[cfg(feature = "ebpf")]
mod cc_update;
mod command;
mod confirm;
mod connections;
mod describes_itself;
#[cfg(feature = "ebpf")]
mod ebpf_in_the_lab;
#[cfg(feature = "live")]
mod export;
mod figures_in_the_lab;
mod full_disk;
mod host;
mod hostile_scenarios;
mod hub;
mod image;
mod kernel;
mod kernel_build;
mod kills;
mod lab;
#[cfg(feature = "ebpf")]
mod live_sockets;
mod loading;
#[cfg(feature = "ebpf")]
mod moving;
#[cfg(feature = "net")]
mod net_in_the_lab;
mod no_lab;
mod perfsonar;
#[cfg(feature = "mesh")]
mod probe;
#[cfg(feature = "mesh")]
mod probe_in_the_lab;
mod program;
mod programs;
#[cfg(feature = "quic")]
mod quic_findings;
mod race;
mod real_ends_in_the_lab;
#[cfg(all(feature = "ebpf", feature = "live"))]
mod records;
mod reference_series;
mod report;
mod scenarios;
mod schema;
mod screens;
mod self_test;
#[cfg(feature = "net")]
mod serve_confined;
#[cfg(feature = "mesh")]
mod sites;
#[cfg(feature = "ebpf")]
mod space;
#[cfg(feature = "ebpf")]
mod split;
#[cfg(feature = "ebpf")]
mod split_in_the_simulator;
#[cfg(feature = "live")]
mod status_traffic;
mod steps;
#[cfg(feature = "trace")]
mod trace_files;
#[cfg(feature = "trace")]
mod trace_in_the_lab;
#[cfg(feature = "trace")]
mod trace_live;
#[cfg(feature = "live")]
mod watch;

// For all modules that run labs in this program: a second call would not be made.
#[cfg(feature = "ebpf")]
fullpipe_lab::reenter_before_main!(moving::Mover::from_descriptors);
