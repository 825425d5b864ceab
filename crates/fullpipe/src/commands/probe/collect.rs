//! `fullpipe probe collect`: copies the records of all sites into one store.

use crate::failure::Failure;
use fullpipe_mesh::clock::{self, Clock};
use fullpipe_mesh::node::{collect, copy};
use fullpipe_mesh::record::SiteId;
use fullpipe_mesh::store::{Directory, Store};
use std::path::PathBuf;

/// Collect new records of all sites into one store
///
/// Fetches them over the mesh's own port with its key; needs no SSH. Resumes where the last
/// collection ended, even if it was interrupted.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    member: super::Member,
    /// Directory to collect into, created if missing; not the --store of a running `probe run`
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    into: PathBuf,
}

/// Rows that are added to the store's chunks in a transaction.
const CHUNKED_ROWS: u32 = 20_000;

impl Args {
    pub fn run(self) -> Result<(), Failure> {
        let (mesh, own, keys) = self.member.read()?;
        let into = Directory::open(&self.into, 0o777)
            .map_err(|e| Failure::usage(format!("--into {}: {e}", self.into.display())))?;
        if self.member.store.canonicalize().is_ok_and(|store| store == into.path()) {
            return Err(Failure::usage(
                "--into is the store of this site's node, which must be its only writer: choose another \
                 directory",
            ));
        }
        let names = mesh.sites.iter().map(|s| s.name.as_str());
        let mut store = Store::open(into.path(), names, mesh.controllers.iter().map(String::as_str))
            .map_err(|e| Failure::Impossible(e.to_string()))?;
        store.set_period(mesh.period).map_err(|e| Failure::Impossible(e.to_string()))?;
        let mut missing = Vec::new();
        for id in 0..mesh.sites.len() as SiteId {
            let name = &mesh.sites[usize::from(id)].name;
            let collected = if id == own {
                Store::read(&self.member.store)
                    .map_err(Into::into)
                    .and_then(|from| copy(&from, name, &mut store))
            } else {
                collect(&mesh, own, id, &keys, &mut store, clock::SystemClock::default().now().wall_ms)
            };
            match collected {
                Ok(collected) => {
                    println!("{name}: {} new records", collected.records);
                    if collected.misdated > 0 {
                        eprintln!(
                            "warning: {name}: skipping {} records dated in the future or before the \
                             retention; check its clock",
                            collected.misdated
                        );
                    }
                    if collected.unknown > 0 {
                        eprintln!(
                            "warning: {name}: skipping {} records with sites, controllers or sizes that the \
                             mesh file does not have",
                            collected.unknown
                        );
                    }
                }
                Err(e) => {
                    eprintln!("{name}: {e}");
                    missing.push(name.as_str());
                }
            }
        }
        // Reports read these instead of all records.
        while store.update_chunks(CHUNKED_ROWS).map_err(|e| Failure::Impossible(e.to_string()))? {}
        if missing.is_empty() {
            return Ok(());
        }
        Err(Failure::Check(format!("incomplete: cannot collect from {}", missing.join(", "))))
    }
}
