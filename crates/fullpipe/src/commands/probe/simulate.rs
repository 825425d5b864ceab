//! `fullpipe probe simulate`: the report of a simulated mesh.

use super::report::show;
use crate::failure::Failure;
use crate::runs::command_line;
use fullpipe_experiment::regular_file;
use fullpipe_mesh::file::MAX_FILE_BYTES;
use fullpipe_mesh::report::{Report, Summary};
use fullpipe_mesh::simulate::SimulatedMesh;
use fullpipe_run::simulate;
use fullpipe_units::Span;
use std::path::PathBuf;

/// Simulate a mesh and its report before deploying it
///
/// Simulates some transfers of each controller on each path, normally and during each of its
/// faults, and assembles the records of --duration from these. Transfers between different pairs of
/// sites do not affect each other.
#[derive(clap::Args)]
pub struct Args {
    /// The mesh file
    #[arg(value_name = "MESH", value_hint = clap::ValueHint::FilePath)]
    mesh: PathBuf,
    /// File that describes the paths and their faults, see docs/reference/mesh-reports.md
    #[arg(value_name = "PATHS", value_hint = clap::ValueHint::FilePath)]
    paths: PathBuf,
    /// Duration that the simulated records cover
    #[arg(long, value_name = "TIME", default_value = "24h")]
    duration: Span,
    /// Seed of the random numbers of the simulated transfers, such as losses
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    format: super::report::FormatOptions,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let outputs = self.format.open()?;
        let mesh = super::read(&self.mesh)?;
        let name = self.paths.display().to_string();
        let text = regular_file::read_text(&self.paths, MAX_FILE_BYTES)
            .map_err(|e| Failure::usage(format!("{name}: {e}")))?;
        let world =
            SimulatedMesh::parse(&mesh, &name, &text, self.duration, self.seed).map_err(Failure::usage)?;
        let history = world.history(simulate).map_err(|e| Failure::usage(format!("{name}: {e}")))?;
        let report = Report::new(&history, (!self.format.no_simulation).then_some(simulate));
        let title = format!("{}, simulated", mesh.name);
        show(&Summary::from(&history), &report, &title, &command_line(), &self.format, outputs)
    }
}
