//! `fullpipe probe`: a mesh of probers between sites.

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

/// Probe the paths between sites continuously
///
/// Each site runs `fullpipe probe run` with the same mesh file: TOML that names the sites, the
/// controllers and the period (docs/reference/probe.md). In each period, each site makes one
/// transfer to every other site with each controller and records the results.
#[derive(ClapArgs)]
#[command(after_help = "Example: fullpipe probe check mesh.toml")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check a mesh file, and show its schedule and bytes per day
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
        match self.command {
            Command::Check(args) => args.run(),
            Command::Key(args) => args.run(),
            Command::Run(args) => args.run(),
            Command::Collect(args) => args.run(),
            Command::Export(args) => args.run(),
            Command::Report(args) => args.run(),
            Command::Simulate(args) => args.run(),
        }
    }
}

/// Options of commands that act as a site of the mesh.
#[derive(ClapArgs)]
struct Member {
    /// The mesh file
    #[arg(value_name = "MESH", value_hint = clap::ValueHint::FilePath)]
    mesh: PathBuf,
    /// Name of this site [default: the one whose address is this machine's]
    #[arg(long, value_name = "NAME")]
    site: Option<String>,
    /// Directory of this site's records and byte counts
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

/// The default directory of a node's records: the state directory of its unit.
const STORE: &str = "/var/lib/fullpipe-probe";

fn site(mesh: &Mesh, name: Option<&str>) -> Result<SiteId, Failure> {
    match name {
        Some(name) => mesh.find_site(name).map_err(|reason| Failure::usage(format!("--site: {reason}"))),
        None => run::own_site(mesh),
    }
}

fn read(path: &Path) -> Result<Mesh, Failure> {
    Mesh::read(path).map_err(Failure::usage)
}
