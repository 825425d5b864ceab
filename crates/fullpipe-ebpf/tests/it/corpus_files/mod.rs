//! The recorded corpus, for those tests that replay it.

use fullpipe_ebpf::oracle::{Reader, Record, random_that_led_to};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Every record, file by file.
pub fn records() -> impl Iterator<Item = Record> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut files: Vec<PathBuf> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rec"))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    files.into_iter().flat_map(|file| {
        Reader::new(std::fs::File::open(file).unwrap()).unwrap().map(|record| record.unwrap())
    })
}

/// The corpus as the programs of the tests read it: records one after the other, the random number
/// filled in.
pub fn raw(directory: &Path) -> PathBuf {
    let path = directory.join("corpus.raw");
    let mut bytes = Vec::new();
    for mut record in records() {
        record.tcp.random = random_that_led_to(&record);
        bytes.extend_from_slice(bytemuck::bytes_of(&record));
    }
    std::fs::write(&path, bytes).unwrap();
    path
}

/// Whether a test that needs `tool` can run; in CI it must.
pub fn have(tool: &str) -> bool {
    let there = Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success());
    assert!(there || std::env::var_os("CI").is_none(), "{tool} is missing, and CI must have it");
    if !there {
        println!("SKIPPED: {tool} is not installed");
    }
    there
}
