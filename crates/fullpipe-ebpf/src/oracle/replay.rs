//! Runs a core over recorded callbacks and compares everything it leaves with what the kernel's BBR
//! left.

use super::record::{Record, field};
use crate::error::Result;
use crate::native::{self, Bbr1State, Op, Tcp};
use std::collections::BTreeMap;

/// Something that must equal the kernel's BBR: takes the state and the connection before a
/// callback, and leaves both as after it; gives what the callback returns.
pub type Core<'a> = &'a mut dyn FnMut(u64, &mut Bbr1State, &mut Tcp, Op, u32) -> u32;

/// Where a core left something else than the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The record's number, from 0.
    pub record: u64,
    /// Its callback.
    pub op: Op,
    /// The fields, each with the core's value and the kernel's.
    pub fields: Vec<(&'static str, u64, u64)>,
}

/// What a replay found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Records replayed.
    pub records: u64,
    /// Records by callback.
    pub by_op: BTreeMap<&'static str, u64>,
    /// Records where the core left anything else than the kernel.
    pub mismatches: u64,
    /// Records during which the kernel's clock ticked: equal at the later tick.
    pub ticked: u64,
    /// The first mismatches.
    pub first: Vec<Difference>,
}

impl Report {
    /// The report as JSON, for the core `core` and the recording `file`.
    pub fn to_json(&self, core: &str, file: &str) -> String {
        let first: Vec<serde_json::Value> = self
            .first
            .iter()
            .map(|difference| {
                let fields: Vec<serde_json::Value> = difference
                    .fields
                    .iter()
                    .map(|(field, ours, kernel)| {
                        serde_json::json!({ "field": field, "ours": ours, "kernel": kernel })
                    })
                    .collect();
                serde_json::json!({
                    "record": difference.record,
                    "callback": name_of(difference.op),
                    "fields": fields,
                })
            })
            .collect();
        serde_json::json!({
            "schema": "fullpipe/cc-replay/1",
            "core": core,
            "file": file,
            "records": self.records,
            "by_callback": self.by_op,
            "mismatches": self.mismatches,
            "ticked": self.ticked,
            "first": first,
        })
        .to_string()
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let by_op: Vec<String> = self.by_op.iter().map(|(op, count)| format!("{op} {count}")).collect();
        writeln!(f, "{} callbacks ({}), {} mismatches", self.records, by_op.join(", "), self.mismatches)?;
        for difference in &self.first {
            writeln!(f, "  callback {} ({}):", difference.record, name_of(difference.op))?;
            for (field, ours, kernel) in &difference.fields {
                writeln!(f, "    {field}: {ours}, the kernel {kernel}")?;
            }
        }
        Ok(())
    }
}

/// Mismatches reported in full.
const MAX_REPORTED: usize = 8;

/// Replays records through a core.
///
/// # Errors
/// What the reader says of a damaged recording.
pub fn replay(records: impl Iterator<Item = Result<Record>>, core: Core<'_>) -> Result<Report> {
    let mut report = Report::default();
    for record in records {
        let record = record?;
        let Some(op) = record.op() else { continue };
        let number = report.records;
        report.records += 1;
        *report.by_op.entry(name_of(op)).or_default() += 1;
        let mut fields = differences(&record, op, record.tcp.ticks, core);
        if !fields.is_empty() && record.ticks != record.tcp.ticks {
            let later = differences(&record, op, record.ticks, core);
            if later.is_empty() {
                report.ticked += 1;
                fields = later;
            }
        }
        if !fields.is_empty() {
            report.mismatches += 1;
            if report.first.len() < MAX_REPORTED {
                report.first.push(Difference { record: number, op, fields });
            }
        }
    }
    Ok(report)
}

fn name_of(op: Op) -> &'static str {
    match op {
        Op::Init => "init",
        Op::Main => "cong_control",
        Op::Event => "cwnd_event",
        Op::State => "set_state",
        Op::Undo => "undo_cwnd",
        Op::Ssthresh => "ssthresh",
        Op::MinTso => "min_tso_segs",
    }
}

fn differences(record: &Record, op: Op, ticks: u32, core: Core<'_>) -> Vec<(&'static str, u64, u64)> {
    let mut tcp = Tcp { ticks, random: random_that_led_to(record), ..record.tcp };
    let mut state = record.state_before;
    let result = core(record.socket, &mut state, &mut tcp, op, record.argument);

    let mut fields = Vec::new();
    let mut compare = |name, ours: u64, kernel: u64| {
        if ours != kernel {
            fields.push((name, ours, kernel));
        }
    };
    compare("snd_cwnd", tcp.snd_cwnd.into(), record.snd_cwnd.into());
    compare("snd_ssthresh", tcp.snd_ssthresh.into(), record.snd_ssthresh.into());
    compare("app_limited", tcp.app_limited.into(), record.app_limited.into());
    compare("pacing_rate", tcp.pacing_rate, record.pacing_rate);
    if matches!(op, Op::Undo | Op::Ssthresh | Op::MinTso) {
        compare("result", result.into(), record.result.into());
    }
    for (name, word, shift, bits) in FIELDS {
        let value = |state: &Bbr1State| u64::from(field(state, word, shift, bits));
        compare(name, value(&state), value(&record.state_after));
    }
    fields
}

/// The random number for which entering ProbeBW ends at the phase the kernel ended at. The kernel
/// draws one of seven: the draining phase is never first, so a state that shows it gives no number
/// that leads there.
pub fn random_that_led_to(record: &Record) -> u32 {
    let draw = u64::from((8 - record.cycle_after()) & 7);
    u32::try_from((draw << 32).div_ceil(7)).unwrap_or(u32::MAX)
}

/// The fields of the kernel's `struct bbr`: name, 32-bit word, lowest bit, bits. Together they
/// cover all 104 bytes.
const FIELDS: [(&str, usize, u32, u32); 44] = [
    ("min_rtt_us", 0, 0, 32),
    ("min_rtt_stamp", 1, 0, 32),
    ("probe_rtt_done_stamp", 2, 0, 32),
    ("bw.s[0].t", 3, 0, 32),
    ("bw.s[0].v", 4, 0, 32),
    ("bw.s[1].t", 5, 0, 32),
    ("bw.s[1].v", 6, 0, 32),
    ("bw.s[2].t", 7, 0, 32),
    ("bw.s[2].v", 8, 0, 32),
    ("rtt_cnt", 9, 0, 32),
    ("next_rtt_delivered", 10, 0, 32),
    ("(padding)", 11, 0, 32),
    ("cycle_mstamp (low)", 12, 0, 32),
    ("cycle_mstamp (high)", 13, 0, 32),
    ("mode", 14, 0, 3),
    ("prev_ca_state", 14, 3, 3),
    ("packet_conservation", 14, 6, 1),
    ("round_start", 14, 7, 1),
    ("idle_restart", 14, 8, 1),
    ("probe_rtt_round_done", 14, 9, 1),
    ("(unused)", 14, 10, 13),
    ("lt_is_sampling", 14, 23, 1),
    ("lt_rtt_cnt", 14, 24, 7),
    ("lt_use_bw", 14, 31, 1),
    ("lt_bw", 15, 0, 32),
    ("lt_last_delivered", 16, 0, 32),
    ("lt_last_stamp", 17, 0, 32),
    ("lt_last_lost", 18, 0, 32),
    ("pacing_gain", 19, 0, 10),
    ("cwnd_gain", 19, 10, 10),
    ("full_bw_reached", 19, 20, 1),
    ("full_bw_cnt", 19, 21, 2),
    ("cycle_idx", 19, 23, 3),
    ("has_seen_rtt", 19, 26, 1),
    ("(unused_b)", 19, 27, 5),
    ("prior_cwnd", 20, 0, 32),
    ("full_bw", 21, 0, 32),
    ("ack_epoch_mstamp (low)", 22, 0, 32),
    ("ack_epoch_mstamp (high)", 23, 0, 32),
    ("extra_acked[0]", 24, 0, 16),
    ("extra_acked[1]", 24, 16, 16),
    ("ack_epoch_acked", 25, 0, 20),
    ("extra_acked_win_rtts", 25, 20, 5),
    ("extra_acked_win_idx and (unused_c)", 25, 25, 7),
];

/// The C core of BBR v1, for [`replay`].
pub fn c_core(_socket: u64, state: &mut Bbr1State, tcp: &mut Tcp, op: Op, argument: u32) -> u32 {
    native::bbr1(state, tcp, op, argument)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_cover_every_bit_of_the_state_once() {
        let mut words = [0u32; 26];
        for (name, word, shift, bits) in FIELDS {
            let mask = (((1u64 << bits) - 1) << shift) as u32;
            assert_eq!(words[word] & mask, 0, "{name} overlaps");
            words[word] |= mask;
        }
        assert_eq!(words, [u32::MAX; 26]);
    }

    #[test]
    fn random_number_leads_to_the_observed_phase() {
        for phase in [0u32, 2, 3, 4, 5, 6, 7] {
            let mut record = Record::default();
            let words: &mut [u32; 26] = bytemuck::cast_mut(&mut record.state_after);
            words[19] = phase << 23;
            let random = random_that_led_to(&record);
            let draw = ((u64::from(random) * 7) >> 32) as u32;
            assert_eq!((7 - draw + 1) & 7, phase);
        }
    }
}
