//! `fullpipe probe key`: the key of a mesh, and the keys of its sites.

use crate::failure::Failure;
use fullpipe_mesh::key::Keys;
use std::path::PathBuf;

/// Generate the key of a mesh, or derive the keys of one site from it
///
/// Without MESH, generates the key of a new mesh. With MESH and --site, derives the keys of that
/// site from the key of the mesh. With its own keys, a site cannot impersonate others.
#[derive(clap::Args)]
pub struct Args {
    /// New file to write, readable only by its owner; an existing file is refused
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    out: PathBuf,
    /// Mesh file, whose `key_file` is the key of the mesh; needs --site
    #[arg(value_name = "MESH", requires = "site", value_hint = clap::ValueHint::FilePath)]
    mesh: Option<PathBuf>,
    /// Name of the site to derive keys for; needs MESH
    #[arg(long, value_name = "NAME", requires = "mesh")]
    site: Option<String>,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let keys = match (&self.mesh, &self.site) {
            (Some(mesh), Some(site)) => {
                let mesh = super::read(mesh)?;
                let id = mesh.find_site(site).map_err(Failure::usage)?;
                let own = &mesh.sites[usize::from(id)].name;
                let keys = Keys::read(&mesh.key_file).map_err(Failure::usage)?;
                let names = mesh.sites.iter().map(|s| s.name.as_str());
                keys.ring(&mesh.name, own, names).map_err(Failure::usage)?
            }
            _ => Keys::generate().map_err(|e| Failure::Impossible(e.to_string()))?,
        };
        keys.write_new(&self.out).map_err(Failure::usage)
    }
}
