//! A capture file of any bytes, in any of the forms that are recognised.
#![no_main]

use fullpipe_trace::{Analyser, Options, input};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut analyser = Analyser::new(Options { plots: true, packets_of: Some(1), ..Options::default() });
    let _ = input::read("fuzz", bytes, |frame| analyser.add_frame(frame));
    for connection in analyser.finish().connections {
        connection.recording();
    }
});
