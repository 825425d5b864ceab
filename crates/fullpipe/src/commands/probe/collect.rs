//! `fullpipe probe collect`: all sites' records in one store.

use crate::failure::Failure;
use fullpipe_mesh::clock::{self, Clock};
use fullpipe_mesh::node::{collect, copy};
use fullpipe_mesh::record::SiteId;
use fullpipe_mesh::store::Store;
use std::path::PathBuf;

/// Pull what is new from every site's node into one store, over the mesh's own protocol
///
/// It goes on where the last time ended, however that ended.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    member: super::Member,
    /// Directory of the store that is to hold all; not one that a node runs with
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    into: PathBuf,
}

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let (mesh, own, keys) = self.member.read()?;
        std::fs::create_dir_all(&self.into)
            .map_err(|e| Failure::usage(format!("--into {}: {e}", self.into.display())))?;
        let same = |a: &PathBuf, b: &PathBuf| {
            a.canonicalize().ok().is_some_and(|a| b.canonicalize().ok() == Some(a))
        };
        if same(&self.into, &self.member.store) {
            return Err(Failure::usage(
                "--into is the node's own store: two that write into it would not know of each other",
            ));
        }
        let names = mesh.sites.iter().map(|s| s.name.as_str());
        let mut store = Store::open(&self.into, names, mesh.controllers.iter().map(String::as_str))
            .map_err(|e| Failure::Impossible(e.to_string()))?;
        store.set_period(mesh.period).map_err(|e| Failure::Impossible(e.to_string()))?;
        let mut missing = Vec::new();
        for id in 0..mesh.sites.len() as SiteId {
            let name = &mesh.sites[usize::from(id)].name;
            let pulled = if id == own {
                Store::read(&self.member.store)
                    .map_err(Into::into)
                    .and_then(|from| copy(&from, name, &mut store))
            } else {
                collect(&mesh, own, id, &keys, &mut store, clock::SystemClock::default().now().wall_ms)
            };
            match pulled {
                Ok(pulled) => {
                    println!("{name}: {} new records", pulled.records);
                    if pulled.later > 0 {
                        eprintln!(
                            "note: {name}: {} records of days to come are left out; is its clock right?",
                            pulled.later
                        );
                    }
                }
                Err(e) => {
                    eprintln!("{name}: {e}");
                    missing.push(name.as_str());
                }
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        Err(Failure::Check(format!("not all that is new: {} had no records to give", missing.join(", "))))
    }
}
