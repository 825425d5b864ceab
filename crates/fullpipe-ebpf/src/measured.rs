//! How close BBR v3's adaptations to stock kernels come to what the draft wants.
//!
//! The draft keeps with each packet what was in flight when it was sent, and how much had been lost
//! (draft-ietf-ccwg-bbr, "Per-packet (P) state"). A stock kernel has no place for that, so
//! `fp_bbr3` looks it up by other means. A build of it that writes down what it found, beside a
//! program that sees each segment leave, gives both: the approximation and the truth.

use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::loader::{self, Loaded};
use crate::ring;
use bytemuck::{Pod, Zeroable};
use libbpf_rs::Link;
use std::collections::VecDeque;

/// The name that sockets choose to be measured.
pub const NAME: &str = "fp_measured";

/// `struct fp_measured` of bpf/measured.h: a segment as it leaves, or an ACK or packets lost as the
/// core sees them.
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
    /// Of a segment that was sent: what was in flight with its packet that ends at `end`.
    fn tx_in_flight(&self, end: u32) -> u64 {
        u64::from(self.in_flight) * u64::from(self.mss) + u64::from(end.wrapping_sub(self.seq))
    }
}

/// The measured build, registered as [`NAME`] while this lives.
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
    /// As for any controller; also where the kernel takes no programs at its tracepoints.
    pub fn start() -> Result<Self> {
        let object = object!("bbr3_measured");
        let mut loaded = loader::load_object(object, NAME, &Kernel::detect()?, loader::Config::default())?;
        let sent = {
            let program = loaded.object().progs_mut().find(|program| program.name() == "fp_sent");
            program.ok_or_else(|| Error::Malformed("the object has no program fp_sent".to_owned()))?.attach()
        };
        let sent = sent.map_err(|error| {
            Error::impossible(
                format!("segments cannot be seen as they leave: {error}"),
                "Linux 5.11 or newer with CONFIG_TRACEPOINTS and CONFIG_DEBUG_INFO_BTF",
            )
        })?;
        let controller = loaded.attach()?;
        Ok(Recorder { loaded, _controller: controller, _sent: sent })
    }

    /// How many losses were noted so far that a tail loss probe repaired.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn probe_losses(&self) -> Result<u64> {
        let [_missed, probe_losses] = ring::counts(self.loaded.object())?;
        Ok(probe_losses)
    }

    /// Takes what was written since the last time and before this one. To be called often enough
    /// for 32 MiB of it: about 300 000 segments and ACKs.
    ///
    /// # Errors
    /// When the ring cannot be read, or some of it was lost.
    pub fn drain(&self, each: impl FnMut(&Record)) -> Result<()> {
        match ring::read(self.loaded.object(), "measured", each, |_| {})? {
            0 => Ok(()),
            missed => Err(Error::Malformed(format!("{missed} records found the ring full"))),
        }
    }
}

/// One quantity, approximated and true, over many ACKs.
#[derive(Clone, Debug, Default)]
pub struct Agreement {
    /// Relative errors, without sign.
    errors: Vec<f64>,
    exact: usize,
}

impl Agreement {
    fn add(&mut self, used: f64, truth: f64, unit: f64) {
        self.exact += usize::from(used == truth);
        self.errors.push((used - truth).abs() / truth.max(unit));
    }

    /// How often it was looked at.
    pub fn count(&self) -> usize {
        self.errors.len()
    }

    /// Share of exact matches, 0 to 1.
    pub fn exact(&self) -> f64 {
        self.exact as f64 / self.errors.len().max(1) as f64
    }

    /// The relative error that the share `q` of all does not exceed; of counts relative to one at
    /// least.
    pub fn error(&self, q: f64) -> f64 {
        let mut sorted = self.errors.clone();
        sorted.sort_by(f64::total_cmp);
        let at = ((sorted.len() as f64 * q) as usize).min(sorted.len().saturating_sub(1));
        sorted.get(at).copied().unwrap_or(0.0)
    }
}

/// How two ways to say "more than 2 % of it was lost" (`IsInflightTooHigh()`) agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerdictCounts {
    /// Both say no, or both say yes.
    pub agree: usize,
    /// The approximation alone says yes.
    pub too_strict: usize,
    /// The truth alone says yes.
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

    /// Share on which they agree.
    pub fn agreement(&self) -> f64 {
        self.agree as f64 / (self.agree + self.too_strict + self.too_lax).max(1) as f64
    }
}

/// `tx_in_flight` and `lost` of a packet, and the verdict that follows from the two.
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

/// What one connection's records say.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    sent: VecDeque<Record>,
    /// Of the newest packet that an ACK acknowledges: the rate sample's.
    pub acked: PacketComparison,
    /// The same, of those ACKs alone whose newest packet had been sent again.
    pub acked_again: PacketComparison,
    /// Of packets marked lost, as the core was told of them: one by one, or several at once against
    /// the last of these, with the verdict of any. Known once [`finish`](Self::finish) is
    /// called.
    pub lost: PacketComparison,
    /// What the core was told of them.
    told: Vec<Record>,
    /// Of each packet marked lost, in their order: what was in flight when it was sent, and lost
    /// before. They are known by being sent again, which happens in the order of their being
    /// marked; one that arrived after all is not.
    marked: Vec<Option<(u64, u32)>>,
    newest: Option<u32>,
}

/// Segments that are remembered: more than any flight.
const MAX_REMEMBERED: usize = 1 << 16;

impl Comparison {
    /// The next record of the connection.
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
            self.told.push(*record);
            return;
        }
        let mss = u64::from(record.mss).max(1);
        if record.has_data != 0
            && let Some((truth, again)) = self.truth(record)
        {
            let used = (record.used_tx_in_flight, record.used_lost);
            self.acked.add(used, truth, too_high(truth), mss);
            if again {
                self.acked_again.add(used, truth, too_high(truth), mss);
            }
        }
    }

    /// What is sent again had been marked lost, unless more has been sent again than lost: a tail
    /// loss probe.
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
                // It was marked after all that had been lost when it was sent.
                self.marked.resize(self.marked.len().max(sent.lost as usize), None);
                self.marked.push(Some((sent.tx_in_flight(end), sent.lost)));
            }
        }
        if (record.end_seq.wrapping_sub(newest) as i32) > 0 {
            self.newest = Some(record.end_seq);
        }
    }

    /// All records are in.
    pub fn finish(&mut self) {
        for told in std::mem::take(&mut self.told) {
            let mss = u64::from(told.mss).max(1);
            let marked = told.lost.saturating_sub(told.packets) as usize..told.lost as usize;
            let Some(packets) = self.marked.get(marked.clone()) else { continue };
            let each = packets.iter().zip(marked).map(|(packet, number)| {
                let (tx_in_flight, before) = (*packet)?;
                Some((tx_in_flight, (number as u64 + 1).saturating_sub(before.into()) * mss))
            });
            let Some(truths) = each.collect::<Option<Vec<(u64, u64)>>>() else { continue };
            let Some(&last) = truths.last() else { continue };
            let used = (told.used_tx_in_flight, told.used_lost);
            self.lost.add(used, last, truths.iter().any(|&truth| too_high(truth)), mss);
        }
    }

    /// The last transmission of a byte, and whether there was one before it.
    fn last_sent(&self, byte: u32) -> Option<(Record, bool)> {
        let holds = |s: &&Record| byte.wrapping_sub(s.seq) < s.end_seq.wrapping_sub(s.seq);
        let mut transmissions = self.sent.iter().rev().filter(holds);
        let last = *transmissions.next()?;
        Some((last, transmissions.next().is_some()))
    }

    /// `P.tx_in_flight` and `C.lost - P.lost` for the newest packet that `ack` acknowledges, and
    /// whether it had been sent before: from its last transmission before `ack`.
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
    fn the_truth_is_that_of_the_last_transmission() {
        let mut seen = Comparison::default();
        seen.add(&sent(0, 0, 0));
        seen.add(&sent(2000, 2, 0));
        // The second packet of the second segment: two before it, one beside it, itself.
        seen.add(&ack(4000, (4000, 0), 0));
        assert_eq!((seen.acked.tx_in_flight.exact(), seen.acked_again.tx_in_flight.count()), (1.0, 0));
        // Its first packet was lost, then sent again with one in flight.
        seen.add(&sent(0, 1, 2));
        seen.add(&ack(1000, (4000, 2000), 2));
        assert_eq!(seen.acked_again.tx_in_flight.count(), 1);
        assert_eq!(seen.acked_again.tx_in_flight.error(0.5), 1.0, "4000 where 2000 is true");
        assert_eq!(seen.acked_again.lost.error(1.0), 2.0, "two where none is true, relative to one");
        assert_eq!(seen.acked.verdicts, VerdictCounts { agree: 1, too_strict: 1, too_lax: 0 });
    }
}
