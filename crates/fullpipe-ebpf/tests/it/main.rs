//! The integration tests, each module by itself: `cargo test -p fullpipe-ebpf --test it MODULE::`.

mod bbr3_cores_are_equal;
mod bbr3_follows_the_draft;
mod bbr3_program;
mod closings;
mod corpus;
mod corpus_files;
mod hybla_cores_are_equal;
mod many_sockets;
mod mutants;
mod objects;
mod transport;
