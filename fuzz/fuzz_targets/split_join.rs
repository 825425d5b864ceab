//! An application's log that someone hands to `fullpipe split report --join`: refused with a place,
//! or read, with each line that cannot be joined counted and the first of them named.
#![no_main]

use fullpipe_split::Log;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| match Log::read(bytes) {
    Err(error) => assert!(error.to_string().starts_with("line ")),
    Ok(log) => {
        assert!(log.rows > 0);
        assert_eq!(log.errors.is_empty(), log.invalid == 0);
        assert!(log.rows + log.invalid <= bytes.len() as u64);
    }
});
