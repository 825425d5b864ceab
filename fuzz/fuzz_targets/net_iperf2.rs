//! Headers, datagrams and reports of iperf 2.
#![no_main]

use fullpipe_net::iperf2::{Datagram, HEADER_LEN, Header, Report, header_len};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some(length) = header_len(bytes) {
        assert!((24..=256).contains(&length));
    }
    if let Ok(header) = Header::parse(bytes) {
        let written = header.to_bytes();
        assert_eq!(header_len(&written), Some(HEADER_LEN));
        let again = Header::parse(&written).expect("its own header");
        // The rate has 56 bits on the wire, and the version is this program's.
        assert_eq!((again.mode, again.amount, again.rate), (header.mode, header.amount, header.rate));
    }
    for wide in [false, true] {
        if let Some(datagram) = Datagram::parse(bytes, wide)
            && bytes.len() >= 16
        {
            let mut copy = bytes.to_vec();
            datagram.write(&mut copy);
        }
    }
    let _ = Datagram::opening(bytes);
    if let Some(report) = Report::parse(bytes) {
        let again = Report::parse(&report.to_bytes()).expect("its own report");
        assert_eq!((again.bytes, again.lost, again.datagrams), (report.bytes, report.lost, report.datagrams));
        assert!(report.line().len() < 300);
    }
});
