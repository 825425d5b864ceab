//! The reference runs of the draft's cases are the same bytes everywhere: in their short form, which
//! `ci/reference-series.sha256` lists below `cases/`, with the pictures of the book.
//! `FULLPIPE_PICTURES=DIR` keeps the pictures (`scripts/pictures cases`).

#[path = "../../examples/reference_cases/pictures.rs"]
mod pictures;
#[path = "../../examples/reference_cases/runs.rs"]
mod runs;
#[path = "../../examples/reference_cases/tables.rs"]
mod tables;
#[path = "../../examples/reference_cases/whole.rs"]
mod whole;

use fullpipe_conformance::CASES;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The files below `folder` by name.
fn files(folder: &Path, prefix: &str, found: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("{prefix}{}", path.file_name().unwrap().to_str().unwrap());
        if path.is_dir() {
            files(&path, &format!("{name}/"), found);
        } else {
            found.insert(name, fs::read(path).unwrap());
        }
    }
}

#[test]
fn reference_runs_and_pictures_are_the_same_bytes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = tempfile::tempdir().unwrap();
    whole::make(folder.path(), true).unwrap();
    let mut made = BTreeMap::new();
    files(folder.path(), "", &mut made);

    let pictures: BTreeMap<&str, &Vec<u8>> =
        made.iter().filter_map(|(name, bytes)| Some((name.strip_prefix("pictures/")?, bytes))).collect();
    assert_eq!(pictures.len(), CASES.len(), "each case has a picture");
    if let Some(kept) = std::env::var_os("FULLPIPE_PICTURES") {
        for (name, bytes) in &pictures {
            fs::write(Path::new(&kept).join(name), bytes).unwrap();
        }
        return;
    }
    let book = root.join("docs/pictures/cases");
    let stale: Vec<&str> = pictures
        .iter()
        .filter(|(name, bytes)| fs::read(book.join(name)).ok().as_ref() != Some(bytes))
        .map(|(name, _)| *name)
        .collect();
    assert!(stale.is_empty(), "`scripts/pictures cases` renews docs/pictures/cases: {}", stale.join(", "));
    let large = pictures.iter().find(|(_, bytes)| bytes.len() > 40_000);
    assert!(large.is_none(), "{} has more than 40 kB", large.unwrap().0);

    // The index says that the reference passes each case on the path of its picture.
    let index = String::from_utf8(made["cases.csv"].clone()).unwrap();
    for case in CASES {
        let passes = |line: &str| line.starts_with(&format!("{},", case.name)) && line.contains(",passed,");
        assert!(index.lines().any(|line| passes(line) && line.contains(",draft,")), "{}", case.name);
    }

    let sum = |bytes: &[u8]| Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect::<String>();
    let sums: Vec<String> =
        made.iter().map(|(name, bytes)| format!("{}  cases/{name}", sum(bytes))).collect();
    let listed = fs::read_to_string(root.join("ci/reference-series.sha256")).unwrap();
    let listed: Vec<&str> = listed.lines().filter(|line| line.contains("  cases/")).collect();
    let differ: Vec<&String> = sums.iter().filter(|line| !listed.contains(&line.as_str())).collect();
    assert!(
        differ.is_empty() && listed.len() == sums.len(),
        "{} listed, {} made; {} differ:\n{differ:#?}\nIf the change is meant: scripts/reference-series \
         --short DIR, and DIR/SHA256SUMS replaces ci/reference-series.sha256",
        listed.len(),
        sums.len(),
        differ.len()
    );
}

#[test]
fn every_left_out_case_has_a_reason_and_the_others_are_most() {
    let places = runs::places();
    assert_eq!(places.len(), CASES.len() * 16);
    let left_out =
        |case: &str| places.iter().filter(|p| p.case.name == case && p.left_out().is_some()).count();
    // Only 1 ms and 10 Mbit/s are less than a packet.
    assert_eq!(left_out("correctly-managing-sub-packet-bdps"), 15);
    assert_eq!(left_out("increasing-bandwidth-10x-and-ensuring-full-bandwidth-is-reached"), 5);
    assert_eq!(left_out("exiting-drain-based-on-inflight"), 1);
    let all = places.iter().filter(|place| place.left_out().is_some()).count();
    assert_eq!(places.len() - all, 22 * 16 - 15 - 5 - 20);
}
