//! `fullpipe probe`: a mesh of standing connections between sites.

mod check;

use crate::failure::Failure;
use clap::{Args as ClapArgs, Subcommand};
use fullpipe_mesh::file::Mesh;
use std::path::Path;

/// Measure the paths between sites all day, by standing connections of each controller side by side
///
/// Each site runs `fullpipe probe run` with the same mesh file: it sends to all others and is sent to, a transfer a period, and
/// writes down what each came to.
#[derive(ClapArgs)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Check a mesh file, and say what it will do: who sends when, and how much a day
    Check(check::Args),
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        match self.what {
            What::Check(args) => args.run(),
        }
    }
}

fn read(path: &Path) -> Result<Mesh, Failure> {
    Mesh::read(path).map_err(Failure::usage)
}
