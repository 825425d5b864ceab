//! A Parquet file that someone hands to `fullpipe report`: refused with a reason, or its rows are
//! counted.
#![no_main]

use fullpipe_report::records::{Distributions, GroupBy, read, text};
use libfuzzer_sys::fuzz_target;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::LazyLock;

/// A file in memory, which the reader opens by its name.
static AT: LazyLock<(PathBuf, File)> = LazyLock::new(|| {
    let path = PathBuf::from(format!("/dev/shm/fullpipe-fuzz-{}.parquet", std::process::id()));
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(&path);
    let file = file.expect("there is room in memory");
    (path, file)
});

fuzz_target!(|bytes: &[u8]| {
    let (path, mut file) = (&AT.0, &AT.1);
    let written = file.seek(SeekFrom::Start(0)).and_then(|_| file.write_all(b"PAR1"));
    written.and_then(|()| file.write_all(bytes)).expect("there is room in memory");
    file.set_len(bytes.len() as u64 + 4).expect("there is room in memory");
    let mut all = Distributions::default();
    match read(path, &mut all) {
        Ok(found) => {
            assert_eq!(all.all.connections, found.connections);
            let _ = text(&all, &GroupBy::ALL);
        }
        Err(reason) => assert!(!reason.to_string().is_empty()),
    }
});
