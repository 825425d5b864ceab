//! Files that people and programs write on a host: sysctl.d lines in both dialects, globs, the
//! journal.
#![no_main]

use fullpipe_host::boot::{self, Dialect};
use fullpipe_host::journal;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for dialect in [Dialect::Systemd, Dialect::Procps] {
        for (line, _) in boot::parse(bytes, dialect) {
            assert!(line >= 1);
        }
    }
    let text = String::from_utf8_lossy(bytes);
    let key = boot::normalise(&text);
    assert!(!boot::normalise(&key).contains("//"));
    if let Some((pattern, key)) = text.split_once('\n') {
        let _ = boot::glob_matches(pattern, key);
    }
    let _ = journal::decode(bytes);
});
