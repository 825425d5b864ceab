//! `fullpipe probe`: a mesh of standing connections between sites.

mod check;
mod collect;
mod export;
mod key;
mod metrics;
mod report;
mod run;
mod simulate;

use crate::failure::Failure;
use clap::{Args as ClapArgs, Subcommand};
use fullpipe_mesh::file::Mesh;
use fullpipe_mesh::key::Keys;
use fullpipe_mesh::record::SiteId;
use std::path::{Path, PathBuf};

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
    Key(key::Args),
    Run(run::Args),
    Collect(collect::Args),
    Export(export::Args),
    Report(report::Args),
    Simulate(simulate::Args),
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        match self.what {
            What::Check(args) => args.run(),
            What::Key(args) => args.run(),
            What::Run(args) => args.run(),
            What::Collect(args) => args.run(),
            What::Export(args) => args.run(),
            What::Report(args) => args.run(),
            What::Simulate(args) => args.run(),
        }
    }
}

/// A site that takes part itself.
#[derive(ClapArgs)]
struct Member {
    /// The mesh file
    #[arg(value_name = "MESH", value_hint = clap::ValueHint::FilePath)]
    mesh: PathBuf,
    /// Which site this is [default: the one whose address is this machine's]
    #[arg(long, value_name = "NAME")]
    site: Option<String>,
    /// Directory for its own records and the account of its bytes
    #[arg(long, value_name = "DIR", default_value = STORE, value_hint = clap::ValueHint::DirPath)]
    store: PathBuf,
    /// Key file [default: the mesh file's `key_file`]
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    key_file: Option<PathBuf>,
}

impl Member {
    fn read(&self) -> Result<(Mesh, SiteId, Keys), Failure> {
        let mesh = read(&self.mesh)?;
        let site = site(&mesh, self.site.as_deref())?;
        let keys = Keys::read(self.key_file.as_deref().unwrap_or(&mesh.key_file)).map_err(Failure::usage)?;
        Ok((mesh, site, keys))
    }
}

/// Where a node's records are, unless it is told: the state directory of its unit.
const STORE: &str = "/var/lib/fullpipe-probe";

fn site(mesh: &Mesh, named: Option<&str>) -> Result<SiteId, Failure> {
    match named {
        Some(name) => mesh.find_site(name).map_err(|reason| Failure::usage(format!("--site: {reason}"))),
        None => run::own_site(mesh),
    }
}

fn read(path: &Path) -> Result<Mesh, Failure> {
    Mesh::read(path).map_err(Failure::usage)
}
