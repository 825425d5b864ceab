//! The file of a split that someone hands to `fullpipe split report`: refused with its line, or
//! read to its end, written again as it was, and reported in words and numbers that a file may
//! hold.
#![no_main]

use fullpipe_split::{Line, MAX_LINE_BYTES, Reader, Report, SplitError, Writer, terminal};
use libfuzzer_sys::fuzz_target;
use std::convert::Infallible;

fuzz_target!(|bytes: &[u8]| {
    let mut reader = match Reader::new(bytes) {
        Ok(reader) => reader,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    let plan = reader.plan().clone();
    let mut lines: Vec<Line> = Vec::new();
    let mut refused = None;
    for line in &mut reader {
        match line {
            Ok(line) => lines.push(line),
            Err(error) => refused = Some(error),
        }
    }
    assert!(!reader.is_truncated() || refused.is_none());
    if let Some(SplitError::File { line, .. }) = refused {
        // The plan is the first, and the one that is refused comes after those that were read.
        assert_eq!(line, lines.len() as u64 + 2);
    }
    let mut file = Vec::new();
    let mut writer = Writer::new(&mut file, &plan).expect("a vector takes everything");
    for line in &lines {
        writer.write(line).expect("a vector takes everything");
    }
    drop(writer);
    if file.split(|byte| *byte == b'\n').all(|line| (line.len() as u64) < MAX_LINE_BYTES) {
        let again = Reader::new(&file[..]).expect("what was read and written");
        // Limits and times of a plan are written rounded, as people read them.
        assert_eq!(again.plan().arms, plan.arms);
        let again: Vec<Line> = again.map(|line| line.expect("what was read and written")).collect();
        assert_eq!(again, lines);
    }
    let report =
        Report::from_lines(&plan, lines.into_iter().map(Ok::<_, Infallible>)).expect("no line fails");
    let _ = terminal(&report);
    serde_json::to_string(&report).expect("a report is JSON");
});
