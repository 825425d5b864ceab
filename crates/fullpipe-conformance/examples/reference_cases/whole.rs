//! All references in a folder.

use super::runs::{Place, Reference, VARIANTS, places};
use super::{pictures, tables};
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

/// Simulates the references and writes them below `folder`, on all cores. With `short` only those
/// that have a picture.
pub fn make(folder: &Path, short: bool) -> Result<(), String> {
    let pictured = |place: &Place| pictures::of_case(place.case).is_some_and(|p| p.path() == place.path);
    let jobs: Vec<Place> = places().into_iter().filter(|place| !short || pictured(place)).collect();
    fs::create_dir_all(folder.join("pictures"))
        .map_err(|e| format!("cannot create {}: {e}", folder.display()))?;
    let results =
        fullpipe_run::in_parallel(&jobs, 0, |_, place| match make_one(place, folder, pictured(place)) {
            Ok(lines) => ControlFlow::Continue(Ok(lines)),
            Err(e) => ControlFlow::Break(Err(format!("{} on {}: {e}", place.case.name, place.path))),
        });
    let mut index = Vec::new();
    for result in results.into_iter().flatten() {
        index.extend(result?);
    }
    index.sort();
    let text = format!("{}\n{}\n", tables::INDEX_HEADER, index.join("\n"));
    fs::write(folder.join("cases.csv"), text).map_err(|e| format!("cannot write cases.csv: {e}"))
}

/// A case on a path with all variants. Returns its lines of the index.
fn make_one(place: &Place, folder: &Path, pictured: bool) -> Result<Vec<String>, String> {
    if let Some(reason) = place.left_out() {
        return Ok(tables::left_out(place, reason));
    }
    let mut lines = Vec::new();
    let mut drawn: Vec<Reference> = Vec::new();
    for variant in VARIANTS {
        let reference = place.simulate(variant)?;
        lines.extend(tables::write(&reference, folder)?);
        if pictured {
            drawn.push(reference);
        }
    }
    if let (Some(picture), [draft, linux]) = (pictures::of_case(place.case), &drawn[..]) {
        let file = folder.join(format!("pictures/{}.svg", place.case.name));
        fs::write(&file, picture.draw(draft, linux)?)
            .map_err(|e| format!("cannot write {}: {e}", file.display()))?;
    }
    Ok(lines)
}
