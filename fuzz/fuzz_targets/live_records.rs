//! What a program in the kernel wrote of a socket, whatever it is, becomes a record that is read
//! again; and records that someone hands to `fullpipe report` are refused with a place, or counted.
#![no_main]

use fullpipe_ebpf::closings;
use fullpipe_experiment::connection::Connection;
use fullpipe_live::Filter;
use fullpipe_live::records::{Anonymiser, Key, Records};
use fullpipe_report::About;
use fullpipe_report::records::{Distributions, GroupBy, page, read_lines, text};
use fullpipe_units::Time;
use libfuzzer_sys::fuzz_target;

/// `struct fp_closed`.
const RAW: usize = 256;

fuzz_target!(|bytes: &[u8]| {
    let mut all = Distributions::default();
    if let Some((raw, _)) = bytes.split_at_checked(RAW) {
        let closed = closings::parse(raw, 250).expect("it has the size of one");
        assert!(
            closed.acked_payload() <= closed.bytes_acked
                && closed.received_payload() <= closed.bytes_received
        );
        let hash = Anonymiser::Hash(Key::new(b"sixteen bytes ok").expect("it is long enough"));
        for anonymiser in [None, Some(Anonymiser::Prefix), Some(hash)] {
            let mut records = Records::new(Filter::everything(), anonymiser, Time::from_nanos(1));
            let record = records.record(&closed, 1.8e9).expect("everything is wanted");
            let line = serde_json::to_string(&record).expect("a record is written");
            assert!(!line.chars().any(char::is_control));
            let again: Connection = serde_json::from_str(&line).expect("a record is read");
            assert_eq!(
                (again.client, again.server, again.closing),
                (record.client, record.server, record.closing)
            );
            all.add(&again);
        }
        assert_eq!(all.all.connections, 3);
    }
    let before = all.all.connections;
    match read_lines(bytes, |record| all.add(record)) {
        Ok(found) => assert_eq!(all.all.connections, before + found.connections),
        Err(reason) => assert!(!reason.is_empty()),
    }
    for by in GroupBy::ALL {
        let grouped: u64 = all.groups(by).iter().map(|group| group.connections).sum();
        assert_eq!(grouped + all.ungrouped(by), all.all.connections);
    }
    let told = text(&all, &GroupBy::ALL);
    assert!(told.contains(&format!("{} connections", all.all.connections)));
    // Pictures of it take a hundred times as long as all else here: an input in sixty-four is drawn.
    if bytes.first().is_some_and(|first| first % 64 == 0) {
        page(&all, &GroupBy::ALL, &About::default(), &mut std::io::sink()).expect("a sink takes everything");
    }
});
