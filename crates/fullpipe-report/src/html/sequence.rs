//! Time-sequence plots: every packet, packed into the page.

use crate::picture::escaped;
use base64::Engine as _;
use flate2::Compression;
use flate2::write::GzEncoder;
use fullpipe_experiment::connection::{MarkKind, Sender, Sequence};
use serde::Serialize;
use std::fmt::Write as _;
use std::io::{self, Write};

const SCRIPT: &str = include_str!("sequence.js");

#[derive(Serialize)]
struct Packed<'a> {
    label: &'a str,
    n: usize,
    packed: String,
}

/// The section with the plots.
pub(super) fn section(sequences: &[Sequence]) -> String {
    if sequences.iter().all(|s| s.marks.is_empty()) {
        return String::new();
    }
    "<section><h2>Time and sequence</h2><p class=\"hint\">Every packet as it was captured: the steeper, the faster; \
     black over green is what is in flight. From afar red at the foot is when something was sent again. Drag a box to zoom to it, or \
     across to zoom in time only; the wheel zooms too; double-click to see everything. Point at a packet to read it.</p>\
     <p id=\"sequence-legend\"></p><div id=\"sequences\"></div></section>"
        .to_owned()
}

/// Which controller sent, how likely each is, and why.
pub(super) fn sender(sender: &Sender) -> String {
    let mut out =
        format!("<section><h2>Which congestion controller sent</h2><p>{}</p>", escaped(&sender.words));
    if !sender.likelihoods.is_empty() {
        out += "<dl>";
        for l in &sender.likelihoods {
            let _ = write!(out, "<dt>{}</dt><dd>{:.1} %</dd>", escaped(&l.name), l.share * 100.0);
        }
        out += "</dl>";
    }
    if !sender.evidence.is_empty() {
        out += "<p class=\"hint\">What spoke for the likeliest against the second:</p><ul>";
        for why in &sender.evidence {
            let _ = write!(out, "<li>{}</li>", escaped(why));
        }
        out += "</ul>";
    }
    out + "</section>"
}

/// The section's data and script.
pub(super) fn script(sequences: &[Sequence]) -> io::Result<String> {
    let shown: Vec<&Sequence> = sequences.iter().filter(|s| !s.marks.is_empty()).collect();
    if shown.is_empty() {
        return Ok(String::new());
    }
    let packed = shown.iter().map(|s| {
        let packed = base64::engine::general_purpose::STANDARD.encode(pack(s)?);
        Ok(Packed { label: &s.label, n: s.marks.len(), packed })
    });
    let packed: Vec<Packed<'_>> = packed.collect::<io::Result<_>>()?;
    let json = serde_json::to_string(&packed).map_err(io::Error::other)?.replace('<', "\\u003c");
    Ok(format!(
        "<script type=\"application/json\" id=\"sequence-data\">{json}</script>\n<script>{SCRIPT}</script>"
    ))
}

/// The marks as columns: kinds, times, first bytes, lengths; the script reads the same.
fn pack(sequence: &Sequence) -> io::Result<Vec<u8>> {
    let marks = &sequence.marks;
    let mut out = GzEncoder::new(Vec::new(), Compression::default());
    let kinds: Vec<u8> = marks.iter().map(|m| m.kind as u8).collect();
    out.write_all(&kinds)?;
    let mut now = 0;
    for m in marks {
        let at = m.at.as_micros();
        // A pause of more than an hour and eleven minutes is drawn as that long.
        out.write_all(&u32::try_from(at.saturating_sub(now)).unwrap_or(u32::MAX).to_le_bytes())?;
        now = at.max(now);
    }
    let mut last = [0_u64; MarkKind::ALL.len()];
    for m in marks {
        let of_kind = &mut last[m.kind as usize];
        let step = (m.from as i64).wrapping_sub(*of_kind as i64);
        let step = step.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32;
        out.write_all(&step.to_le_bytes())?;
        *of_kind = of_kind.wrapping_add_signed(i64::from(step));
    }
    for m in marks {
        out.write_all(&u32::try_from(m.to.saturating_sub(m.from)).unwrap_or(u32::MAX).to_le_bytes())?;
    }
    out.finish()
}

/// What the reader must know first, in place of a race's conclusion.
pub(super) fn words(words: &[String]) -> String {
    words.iter().map(|w| escaped(w).to_string()).collect::<Vec<_>>().join("<br>")
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::read::GzDecoder;
    use fullpipe_experiment::connection::Mark;
    use fullpipe_units::Span;
    use std::io::Read;

    #[test]
    fn columns_read_back_as_the_script_reads_them() {
        let mark = |us, from, to, kind| Mark { at: Span::from_micros(us), from, to, kind };
        let marks = vec![
            mark(5, 0, 1448, MarkKind::Data),
            mark(40, 1448, 1448, MarkKind::Ack),
            mark(45, 1448, 2896, MarkKind::Data),
            mark(99, 0, 1448, MarkKind::Retransmission),
        ];
        let n = marks.len();
        let packed = pack(&Sequence { label: String::new(), marks }).unwrap();
        let mut plain = Vec::new();
        GzDecoder::new(packed.as_slice()).read_to_end(&mut plain).unwrap();
        assert_eq!(plain.len(), 13 * n);
        let word = |i: usize| u32::from_le_bytes(plain[i..i + 4].try_into().unwrap());
        assert_eq!(plain[..n], [0, 2, 0, 1]);
        assert_eq!([word(n), word(n + 4), word(n + 8), word(n + 12)], [5, 35, 5, 54]);
        assert_eq!([word(5 * n), word(5 * n + 4), word(5 * n + 8)], [0, 1448, 1448]);
        assert_eq!(word(9 * n), 1448);
    }

    #[test]
    fn a_page_without_packets_has_no_such_section() {
        assert_eq!(section(&[Sequence::default()]), "");
        assert_eq!(script(&[]).unwrap(), "");
    }
}
