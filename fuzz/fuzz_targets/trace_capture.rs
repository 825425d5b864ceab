//! A capture file of any bytes, in any of the forms that are recognised.
#![no_main]

use fullpipe_trace::{Analysis, Options, input};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut analysis = Analysis::new(Options { plots: true, packets_of: Some(1), ..Options::default() });
    let _ = input::read("fuzz", bytes, |frame| analysis.frame(frame));
    for connection in analysis.finish().connections {
        connection.recording();
    }
});
