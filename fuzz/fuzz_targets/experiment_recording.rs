//! Results that someone hands to `fullpipe run merge`: refused with a reason, or put together,
//! judged, and written in every form.
#![no_main]

use fullpipe_experiment::recording::Results;
use fullpipe_report::table::Style;
use fullpipe_report::{About, Format, table, verdict};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(results) = serde_json::from_slice::<Results>(bytes) else { return };
    let written = serde_json::to_vec(&results).expect("it can be written");
    let again: Results = serde_json::from_slice(&written).expect("our own words");
    assert_eq!(serde_json::to_vec(&again).expect("it can be written"), written);
    let results = fullpipe_run::merge(vec![again]).unwrap_or(results);
    let _ = verdict(&results) + &table::table(&results, &Style { width: 100, colour: false });
    let about = About { title: "fuzz".to_owned(), command: "fuzz".to_owned() };
    for format in [Format::Html, Format::Svg, Format::Csv, Format::Qlog] {
        let _ = format.write(&results, &about, &mut std::io::sink());
    }
});
