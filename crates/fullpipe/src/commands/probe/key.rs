//! `fullpipe probe key`: a mesh's key, and what a site is given of it.

use crate::failure::Failure;
use fullpipe_mesh::key::Keys;
use std::path::PathBuf;

/// Make a mesh's key; or of it the keys of one site, which cannot speak for others with them
#[derive(clap::Args)]
pub struct Args {
    /// The file to write, which only its owner may read
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    out: PathBuf,
    /// The mesh file, whose `key_file` is the mesh's key
    #[arg(value_name = "MESH", requires = "site", value_hint = clap::ValueHint::FilePath)]
    mesh: Option<PathBuf>,
    /// The site that the keys are for
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
