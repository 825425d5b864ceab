//! Time-sequence plots: every packet, compressed into the page.

use crate::picture::escape_html;
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
    "<section><h2>Time and sequence</h2><p class=\"hint\">Every captured packet. The slope is the rate; \
     the distance between black and green is the data in flight. Zoomed out, retransmissions are red \
     marks at the bottom. Drag a box to zoom, or drag sideways to zoom in time only; the wheel zooms \
     too; double-click to reset. Point at a packet for its details.</p>\
     <p id=\"sequence-legend\"></p><div id=\"sequences\"></div></section>"
        .to_owned()
}

/// The section with the identified controller, the probabilities and the evidence.
pub(super) fn sender(sender: &Sender) -> String {
    let mut out =
        format!("<section><h2>Congestion controller of the sender</h2><p>{}</p>", escape_html(&sender.words));
    if !sender.conditions.is_empty() {
        out += "<p class=\"hint\">What the path did beyond a constant rate and a drop-tail queue:</p><ul>";
        for condition in &sender.conditions {
            let _ = write!(out, "<li>{}</li>", escape_html(condition));
        }
        out += "</ul>";
    }
    if !sender.likelihoods.is_empty() {
        out += "<dl>";
        for l in &sender.likelihoods {
            let _ = write!(out, "<dt>{}</dt><dd>{:.1} %</dd>", escape_html(&l.name), l.share * 100.0);
        }
        out += "</dl>";
    }
    if !sender.evidence.is_empty() {
        out += "<p class=\"hint\">Evidence:</p><ul>";
        for why in &sender.evidence {
            let _ = write!(out, "<li>{}</li>", escape_html(why));
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

/// The marks as columns (kinds, times, first bytes, lengths), as the script reads them.
fn pack(sequence: &Sequence) -> io::Result<Vec<u8>> {
    let marks = &sequence.marks;
    let mut out = GzEncoder::new(Vec::new(), Compression::default());
    let kinds: Vec<u8> = marks.iter().map(|m| m.kind as u8).collect();
    out.write_all(&kinds)?;
    let mut now = 0;
    for m in marks {
        let at = m.at.as_micros();
        // Longer pauses are drawn as 2³² µs (71 minutes).
        out.write_all(&u32::try_from(at.saturating_sub(now)).unwrap_or(u32::MAX).to_le_bytes())?;
        now = at.max(now);
    }
    let mut last = [0_u64; MarkKind::ALL.len()];
    for m in marks {
        let previous = &mut last[m.kind as usize];
        let step = (m.from as i64).wrapping_sub(*previous as i64);
        let step = step.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32;
        out.write_all(&step.to_le_bytes())?;
        *previous = previous.wrapping_add_signed(i64::from(step));
    }
    for m in marks {
        out.write_all(&u32::try_from(m.to.saturating_sub(m.from)).unwrap_or(u32::MAX).to_le_bytes())?;
    }
    out.finish()
}

/// The conclusions, one per line, in place of the verdict of a race.
pub(super) fn conclusion_lines(lines: &[String]) -> String {
    lines.iter().map(|line| escape_html(line).to_string()).collect::<Vec<_>>().join("<br>")
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
    fn page_without_packets_has_no_section() {
        assert_eq!(section(&[Sequence::default()]), "");
        assert_eq!(script(&[]).unwrap(), "");
    }
}
