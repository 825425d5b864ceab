//! `fullpipe probe simulate`: what a mesh would tell.

use super::report::show;
use crate::failure::Failure;
use crate::runs::command_line;
use fullpipe_experiment::regular_file;
use fullpipe_mesh::file::MAX_FILE_BYTES;
use fullpipe_mesh::simulate::SimulatedMesh;
use fullpipe_units::Span;
use std::path::PathBuf;

/// Simulate a mesh before it is deployed: what it would tell of given paths when something goes wrong on them
///
/// Each state of each path is simulated alone, some transfers of each controller, and the time is woven from these: what
/// transfers of different pairs do to each other is not in it.
#[derive(clap::Args)]
pub struct Args {
    /// The mesh file
    #[arg(value_name = "MESH", value_hint = clap::ValueHint::FilePath)]
    mesh: PathBuf,
    /// What the paths are like and what goes wrong on them, as docs/reference/mesh-reports.md describes it
    #[arg(value_name = "PATHS", value_hint = clap::ValueHint::FilePath)]
    paths: PathBuf,
    /// How long the mesh runs
    #[arg(long, value_name = "TIME", default_value = "24h")]
    duration: Span,
    /// Of all that is random
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    how: super::report::How,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let to = self.how.open()?;
        let mesh = super::read(&self.mesh)?;
        let name = self.paths.display().to_string();
        let text = regular_file::read_text(&self.paths, MAX_FILE_BYTES)
            .map_err(|e| Failure::usage(format!("{name}: {e}")))?;
        let world =
            SimulatedMesh::parse(&mesh, &name, &text, self.duration, self.seed).map_err(Failure::usage)?;
        let history = world.history().map_err(|e| Failure::usage(format!("{name}: {e}")))?;
        show(&history, &format!("{}, simulated", mesh.name), &command_line(), &self.how, to)
    }
}
