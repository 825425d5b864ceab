//! A log that is a sequence of JSON texts, each preceded by RS (RFC 7464) or followed by a line
//! feed (NDJSON).

use super::builder::Builder;
use super::source::Bounded;
use serde_json::Value;
use std::io::Read;

pub(super) const RECORD_SEPARATOR: u8 = 0x1e;

/// Reads the records into `builder`. Returns whether the last record is cut short; `false` as well
/// for a source that fails.
pub(super) fn read<R: Read>(source: &mut Bounded<R>, delimiter: u8, builder: &mut Builder) -> bool {
    let mut bytes = Vec::new();
    let mut is_cut = false;
    while source.record(delimiter, &mut bytes) {
        let text = trim(&bytes);
        if text.is_empty() {
            // Nothing precedes the first separator; a record that is too long is empty, too.
            if bytes.is_empty() {
                builder.file.malformed += 1;
            }
            continue;
        }
        is_cut = false;
        match serde_json::from_slice::<Value>(text) {
            Ok(content) => builder.add_record(content),
            Err(e) => {
                // RFC 7464 §2.1: a record that is damaged does not affect the next.
                builder.file.malformed += 1;
                is_cut = e.is_eof();
            }
        }
    }
    is_cut
}

fn trim(bytes: &[u8]) -> &[u8] {
    let is_space = |b: &u8| b.is_ascii_whitespace() || *b == RECORD_SEPARATOR;
    let from = bytes.iter().position(|b| !is_space(b)).unwrap_or(bytes.len());
    let to = bytes.iter().rposition(|b| !is_space(b)).map_or(from, |i| i + 1);
    &bytes[from..to]
}
