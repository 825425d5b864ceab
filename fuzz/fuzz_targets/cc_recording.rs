//! A recording of the kernel's BBR that someone hands to `fullpipe cc replay`: refused with a reason, or replayed
//! through both cores to its end and written again as it was.
#![no_main]

use flate2::{Compression, write::DeflateEncoder};
use fullpipe_ebpf::oracle::{Reader, Record, Writer, c_core, replay, rust_core};
use libfuzzer_sys::fuzz_target;
use std::io::Write;

const MAGIC: &[u8; 8] = b"fpccrec1";

/// The records that can be read before the file ends or turns out to be damaged.
fn records(file: &[u8]) -> Vec<Record> {
    Reader::new(file).into_iter().flatten().map_while(Result::ok).collect()
}

fuzz_target!(|bytes: &[u8]| {
    // A file as it is; or what the compressed part of one holds, which mutation seldom gets right.
    let file = if bytes.starts_with(MAGIC) {
        bytes.to_vec()
    } else {
        let mut to = DeflateEncoder::new(MAGIC.to_vec(), Compression::none());
        to.write_all(bytes).expect("a vector takes everything");
        to.finish().expect("a vector takes everything")
    };
    let read = records(&file);
    for core in [&mut c_core as &mut dyn FnMut(_, &mut _, &mut _, _, _) -> _, &mut rust_core] {
        let report = replay(read.iter().copied().map(Ok), core).expect("records that were read");
        assert!(report.records <= read.len() as u64 && report.mismatches <= report.records);
        let _ = (report.to_string(), report.to_json("core", "file"));
    }
    let mut writer = Writer::new(Vec::new()).expect("a vector takes everything");
    for record in &read {
        writer.write(record).expect("a vector takes everything");
    }
    let again = records(&writer.finish().expect("a vector takes everything"));
    assert!(again == read, "written and read again");
});
