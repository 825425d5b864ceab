//! A recording of the kernel's BBR that someone hands to `fullpipe cc replay`: refused with a
//! reason, or replayed through both cores to its end and written again as it was.
#![no_main]

use fullpipe_ebpf::oracle::{Reader, Record, Writer, c_core, replay, rust_core};
use libfuzzer_sys::fuzz_target;

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
        // One stored block, the last (RFC 1951 § 3.2.4): a compressor takes longer to set up than all else
        // here.
        let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        let head = [&[1][..], &length.to_le_bytes(), &(!length).to_le_bytes()].concat();
        [&MAGIC[..], &head, &bytes[..usize::from(length)]].concat()
    };
    let read = records(&file);
    for core in [&mut c_core as &mut dyn FnMut(_, &mut _, &mut _, _, _) -> _, &mut rust_core] {
        let report = replay(read.iter().copied().map(Ok), core).expect("records that were read");
        assert!(report.records <= read.len() as u64 && report.mismatches <= report.records);
        let _ = (report.to_string(), report.to_json("core", "file"));
    }
    // What writes compresses, which takes longer than all else here: an input in sixteen is written, if
    // it holds anything.
    if read.is_empty() || bytes.last().is_some_and(|last| last % 16 != 0) {
        return;
    }
    let mut writer = Writer::new(Vec::new()).expect("a vector takes everything");
    for record in &read {
        writer.write(record).expect("a vector takes everything");
    }
    let again = records(&writer.finish().expect("a vector takes everything"));
    assert!(again == read, "written and read again");
});
