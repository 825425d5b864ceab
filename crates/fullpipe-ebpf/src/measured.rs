//! Measures how accurately BBR v3's adaptations to stock kernels match the draft.
//! The draft stores with each packet the data in flight and the losses when it was sent
//! (draft-ietf-ccwg-bbr, "Per-packet (P) state"). A stock kernel has no field for them, so
//! `fp_bbr3` estimates them. A build that records its estimates, together with a program that
//! records each segment sent, gives both estimate and truth.

use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::loader::{self, Loaded};
use crate::ring;
use bytemuck::{Pod, Zeroable};
use libbpf_rs::Link;
use std::collections::VecDeque;

/// The controller name for sockets to be measured.
pub const NAME: &str = "fp_measured";

/// `struct fp_measured` of bpf/measured.h: a segment sent, or an ACK or lost packets as seen by the
/// core.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub struct Record {
    socket: u64,
    kind: u32,
    mss: u32,
    seq: u32,
    end_seq: u32,
    in_flight: u32,
    lost: u32,
    packets: u32,
    has_data: u32,
    used_tx_in_flight: u64,
    used_lost: u64,
}

const SENT: u32 = 1;
const LOST: u32 = 3;

impl Record {
    /// For a segment sent: the data in flight including its packet that ends at `end`.
    fn tx_in_flight(&self, end: u32) -> u64 {
        u64::from(self.in_flight) * u64::from(self.mss) + u64::from(end.wrapping_sub(self.seq))
    }
}

/// The measured build, registered as [`NAME`] until dropped.
#[derive(Debug)]
pub struct Recorder {
    loaded: Loaded,
    _controller: loader::Registered,
    _sent: Link,
}

impl Recorder {
    /// Loads and registers it.
    ///
    /// # Errors
    /// As for any controller; also if the kernel does not support programs at its tracepoints.
    pub fn start() -> Result<Self> {
        let object = object!("bbr3_measured");
        let mut loaded = loader::load_object(object, NAME, &Kernel::detect()?, loader::Config::default())?;
        let sent = {
            let program = loaded.object().progs_mut().find(|program| program.name() == "fp_sent");
            program.ok_or_else(|| Error::Malformed("the object has no program fp_sent".to_owned()))?.attach()
        };
        let sent = sent.map_err(|error| {
            Error::impossible(
                format!("sent segments cannot be traced: {error}"),
                "Linux 5.11 or newer with CONFIG_TRACEPOINTS and CONFIG_DEBUG_INFO_BTF",
            )
        })?;
        let controller = loaded.attach()?;
        Ok(Recorder { loaded, _controller: controller, _sent: sent })
    }

    /// Losses repaired by a tail loss probe so far.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn probe_losses(&self) -> Result<u64> {
        let [_dropped, probe_losses] = ring::counts(self.loaded.object())?;
        Ok(probe_losses)
    }

    /// Reads the records written since the last call. The buffer holds 32 MiB: about 300 000
    /// segments and ACKs.
    ///
    /// # Errors
    /// If the ring cannot be read, or records were dropped.
    pub fn drain(&self, each: impl FnMut(&Record)) -> Result<()> {
        match ring::read(self.loaded.object(), "measured", each, |_| {})? {
            0 => Ok(()),
            dropped => {
                Err(Error::Malformed(format!("{dropped} records were dropped because the ring was full")))
            }
        }
    }
}

/// Estimates of one quantity compared with the truth, over many ACKs.
#[derive(Clone, Debug, Default)]
pub struct Agreement {
    /// Absolute relative errors.
    errors: Vec<f64>,
    exact: usize,
}

impl Agreement {
    fn add(&mut self, used: f64, truth: f64, unit: f64) {
        self.exact += usize::from(used == truth);
        self.errors.push((used - truth).abs() / truth.max(unit));
    }

    /// Number of comparisons.
    pub fn count(&self) -> usize {
        self.errors.len()
    }

    /// Share of exact matches, 0 to 1.
    pub fn exact(&self) -> f64 {
        self.exact as f64 / self.errors.len().max(1) as f64
    }

    /// The `q`-quantile of the relative error; counts are relative to at least one.
    pub fn error(&self, q: f64) -> f64 {
        let mut sorted = self.errors.clone();
        sorted.sort_by(f64::total_cmp);
        let at = ((sorted.len() as f64 * q) as usize).min(sorted.len().saturating_sub(1));
        sorted.get(at).copied().unwrap_or(0.0)
    }
}

/// Agreement of estimate and truth on `IsInflightTooHigh()` (more than 2 % lost).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerdictCounts {
    /// Both agree.
    pub agree: usize,
    /// Only the estimate exceeds the threshold.
    pub too_strict: usize,
    /// Only the truth exceeds the threshold.
    pub too_lax: usize,
}

impl VerdictCounts {
    fn add(&mut self, used: bool, truth: bool) {
        match (used, truth) {
            (true, false) => self.too_strict += 1,
            (false, true) => self.too_lax += 1,
            _ => self.agree += 1,
        }
    }

    /// Share of agreement, 0 to 1.
    pub fn agreement(&self) -> f64 {
        self.agree as f64 / (self.agree + self.too_strict + self.too_lax).max(1) as f64
    }
}

/// Comparison of `tx_in_flight` and `lost` of packets, and the verdict from both.
#[derive(Clone, Debug, Default)]
pub struct PacketComparison {
    /// `P.tx_in_flight`.
    pub tx_in_flight: Agreement,
    /// `C.lost - P.lost`.
    pub lost: Agreement,
    /// `IsInflightTooHigh()`.
    pub verdicts: VerdictCounts,
}

impl PacketComparison {
    fn add(&mut self, used: (u64, u64), truth: (u64, u64), is_too_high: bool, mss: u64) {
        self.tx_in_flight.add(used.0 as f64, truth.0 as f64, mss as f64);
        self.lost.add((used.1 / mss) as f64, (truth.1 / mss) as f64, 1.0);
        self.verdicts.add(too_high(used), is_too_high);
    }
}

/// `IsInflightTooHigh()`: more than 2 % is lost.
fn too_high((tx_in_flight, lost): (u64, u64)) -> bool {
    lost * 50 > tx_in_flight
}

/// The evaluation of one connection's records.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    sent: VecDeque<Record>,
    /// For the newest packet acknowledged by each ACK, as in the rate sample.
    pub acked: PacketComparison,
    /// As `acked`, only for packets that had been retransmitted.
    pub acked_retransmitted: PacketComparison,
    /// For packets marked lost, as reported to the core: singly, or several at once compared with
    /// the last of them and the verdict of any. Complete after [`finish`](Self::finish).
    pub lost: PacketComparison,
    /// Loss reports to the core.
    reported: Vec<Record>,
    /// Data in flight and losses when each lost packet was sent, in order of marking. Lost packets
    /// are recognised by their retransmissions, which occur in the same order; packets that
    /// arrived after all are `None`.
    marked: Vec<Option<(u64, u32)>>,
    newest: Option<u32>,
}

/// Segments kept: more than any flight.
const MAX_REMEMBERED: usize = 1 << 16;

impl Comparison {
    /// Adds the next record of the connection.
    pub fn add(&mut self, record: &Record) {
        if record.kind == SENT {
            self.note_retransmission(record);
            if self.sent.len() == MAX_REMEMBERED {
                self.sent.pop_front();
            }
            self.sent.push_back(*record);
            return;
        }
        if record.kind == LOST {
            self.reported.push(*record);
            return;
        }
        let mss = u64::from(record.mss).max(1);
        if record.has_data != 0
            && let Some((truth, again)) = self.truth(record)
        {
            let used = (record.used_tx_in_flight, record.used_lost);
            self.acked.add(used, truth, too_high(truth), mss);
            if again {
                self.acked_retransmitted.add(used, truth, too_high(truth), mss);
            }
        }
    }

    /// A retransmitted packet had been marked lost, unless there are more retransmissions than
    /// losses: a tail loss probe.
    fn note_retransmission(&mut self, record: &Record) {
        let newest = *self.newest.get_or_insert(record.seq);
        let mss = record.mss.max(1);
        if (record.seq.wrapping_sub(newest) as i32) < 0 {
            let packets = record.end_seq.wrapping_sub(record.seq).div_ceil(mss);
            for i in 0..packets {
                let end = record.seq.wrapping_add((i + 1) * mss);
                let Some((sent, _)) = self.last_sent(end.wrapping_sub(1)) else { continue };
                if self.marked.len() >= record.lost as usize {
                    break;
                }
                // It was marked after all packets lost before it was sent.
                self.marked.resize(self.marked.len().max(sent.lost as usize), None);
                self.marked.push(Some((sent.tx_in_flight(end), sent.lost)));
            }
        }
        if (record.end_seq.wrapping_sub(newest) as i32) > 0 {
            self.newest = Some(record.end_seq);
        }
    }

    /// Completes the comparison after the last record.
    pub fn finish(&mut self) {
        for report in std::mem::take(&mut self.reported) {
            let mss = u64::from(report.mss).max(1);
            let marked = report.lost.saturating_sub(report.packets) as usize..report.lost as usize;
            let Some(packets) = self.marked.get(marked.clone()) else { continue };
            let each = packets.iter().zip(marked).map(|(packet, number)| {
                let (tx_in_flight, before) = (*packet)?;
                Some((tx_in_flight, (number as u64 + 1).saturating_sub(before.into()) * mss))
            });
            let Some(truths) = each.collect::<Option<Vec<(u64, u64)>>>() else { continue };
            let Some(&last) = truths.last() else { continue };
            let used = (report.used_tx_in_flight, report.used_lost);
            self.lost.add(used, last, truths.iter().any(|&truth| too_high(truth)), mss);
        }
    }

    /// The last transmission of a byte, and whether it was a retransmission.
    fn last_sent(&self, byte: u32) -> Option<(Record, bool)> {
        let holds = |s: &&Record| byte.wrapping_sub(s.seq) < s.end_seq.wrapping_sub(s.seq);
        let mut transmissions = self.sent.iter().rev().filter(holds);
        let last = *transmissions.next()?;
        Some((last, transmissions.next().is_some()))
    }

    /// The true `P.tx_in_flight` and `C.lost - P.lost` of the newest packet acknowledged by `ack`,
    /// from its last transmission, and whether that was a retransmission.
    fn truth(&self, ack: &Record) -> Option<((u64, u64), bool)> {
        let (last, again) = self.last_sent(ack.end_seq.wrapping_sub(1))?;
        let lost = u64::from(ack.lost.wrapping_sub(last.lost)) * u64::from(ack.mss);
        Some(((last.tx_in_flight(ack.end_seq), lost), again))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(seq: u32, in_flight: u32, lost: u32) -> Record {
        Record { kind: SENT, mss: 1000, seq, end_seq: seq + 2000, in_flight, lost, ..Record::zeroed() }
    }

    fn ack(end_seq: u32, used: (u64, u64), lost: u32) -> Record {
        Record {
            kind: 2,
            mss: 1000,
            end_seq,
            lost,
            has_data: 1,
            used_tx_in_flight: used.0,
            used_lost: used.1,
            ..Record::zeroed()
        }
    }

    #[test]
    fn truth_is_taken_from_the_last_transmission() {
        let mut comparison = Comparison::default();
        comparison.add(&sent(0, 0, 0));
        comparison.add(&sent(2000, 2, 0));
        // The second packet of the second segment: two before it, one beside it, itself.
        comparison.add(&ack(4000, (4000, 0), 0));
        assert_eq!(
            (comparison.acked.tx_in_flight.exact(), comparison.acked_retransmitted.tx_in_flight.count()),
            (1.0, 0)
        );
        // Its first packet was lost, then retransmitted with one in flight.
        comparison.add(&sent(0, 1, 2));
        comparison.add(&ack(1000, (4000, 2000), 2));
        assert_eq!(comparison.acked_retransmitted.tx_in_flight.count(), 1);
        assert_eq!(comparison.acked_retransmitted.tx_in_flight.error(0.5), 1.0, "4000 where 2000 is true");
        assert_eq!(
            comparison.acked_retransmitted.lost.error(1.0),
            2.0,
            "two where none is true, relative to one"
        );
        assert_eq!(comparison.acked.verdicts, VerdictCounts { agree: 1, too_strict: 1, too_lax: 0 });
    }
}
