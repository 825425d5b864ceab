//! What programs inside the lab may put on the wire: any bytes, with any virtio header.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u16, u16, &[u8])| {
    let (first, count, bytes) = input;
    let _ = fullpipe_lab::read_and_cut(bytes, first, count);
});
