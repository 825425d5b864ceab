//! File format of an experiment: JSON lines for the plan, each closed connection, and events.

use crate::{Outcome, Plan, SplitError};
use fullpipe_units::Fraction;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Read, Write};

/// Name and version of the format.
pub const SCHEMA: &str = "fullpipe/split/1";
/// Maximum line length in bytes.
pub const MAX_LINE_BYTES: u64 = 64 * 1024;

/// A line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Line {
    /// The first line: the plan.
    Plan {
        /// [`SCHEMA`].
        schema: String,
        /// The plan.
        plan: Plan,
    },
    /// A connection closed.
    Connection(Outcome),
    /// The shares changed.
    Shares {
        /// Number of the change, from 0; outcomes refer to it.
        generation: u64,
        /// Shares by arm.
        shares: Vec<Fraction>,
        /// Unix time, seconds.
        unix_s: f64,
        /// Cause of the change.
        why: String,
    },
    /// A period of `--by time` ended.
    Period(Period),
    /// Counters so far.
    Counts(Counts),
    /// The last line.
    End {
        /// Unix time, seconds.
        unix_s: f64,
        /// Cause of the end.
        why: String,
    },
}

/// Activity of the whole host in a period of `--by time`, after its wash-out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Period {
    /// Number of the period, from the start of the experiment.
    pub number: u64,
    /// Arm of the period.
    pub arm: u8,
    /// End of the period, Unix seconds.
    pub unix_s: f64,
    /// Duration of counting, seconds.
    pub duration_s: f64,
    /// CPU time of all CPUs, with interrupts (`/proc/stat`), seconds.
    pub processor_s: f64,
    /// Bytes acknowledged on connections of the experiment that closed in the period, in any arm.
    pub acked_bytes: u64,
}

impl Period {
    /// Validates the period, given the number of arms.
    fn check(&self, arms: usize) -> Result<(), String> {
        if usize::from(self.arm) >= arms {
            return Err(format!("arm {} of {arms}", self.arm));
        }
        let all =
            [("unix_s", self.unix_s), ("duration_s", self.duration_s), ("processor_s", self.processor_s)];
        match all.iter().find(|(_, value)| !(value.is_finite() && *value >= 0.0)) {
            Some((name, value)) => Err(format!("{name} is {value}")),
            None => Ok(()),
        }
    }
}

/// Counters of the eBPF program since its start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Unix time, seconds.
    pub unix_s: f64,
    /// Connections assigned to each arm.
    pub opened: Vec<u64>,
    /// Closed connections among these.
    pub closed: Vec<u64>,
    /// Bytes acknowledged on closed connections, including SYN and FIN.
    pub acked_bytes: Vec<u64>,
    /// Payload retransmitted on closed connections, bytes.
    pub resent_bytes: Vec<u64>,
    /// Segments retransmitted on closed connections.
    pub resent_segments: Vec<u64>,
    /// Connections for which the kernel refused the arm's controller: they are in no arm.
    pub refused: Vec<u64>,
    /// Left alone because the program had set a controller.
    pub program_chose: u64,
    /// Left alone because the route sets a controller.
    pub route_chose: u64,
    /// Connections outside all shares.
    pub outside: u64,
    /// Connections excluded by port or filter.
    pub other_ports: u64,
    /// Connections opened while the lease had expired.
    pub lapsed: u64,
    /// Closed connections not recorded because the ring buffer was full.
    pub lost: u64,
    /// Closed connections not written because the file had its maximum size. The owner counts them,
    /// not the program.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unwritten: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "the form that serde calls")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Writer for experiment files.
#[derive(Debug)]
pub struct Writer<W: Write> {
    to: W,
    written_bytes: u64,
}

impl<W: Write> Writer<W> {
    /// Starts a file with its plan.
    ///
    /// # Errors
    /// When writing fails.
    pub fn new(to: W, plan: &Plan) -> io::Result<Self> {
        let mut writer = Writer { to, written_bytes: 0 };
        writer.write(&Line::Plan { schema: SCHEMA.to_owned(), plan: plan.clone() })?;
        Ok(writer)
    }

    /// Writes a line.
    ///
    /// # Errors
    /// When writing fails.
    pub fn write(&mut self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.to.write_all(&text)?;
        self.written_bytes += text.len() as u64;
        Ok(())
    }

    /// Bytes written so far, including those that are still buffered.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// Flushes buffered lines.
    ///
    /// # Errors
    /// When writing fails.
    pub fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// The next line with its line break, truncated shortly after [`MAX_LINE_BYTES`]. `None` at the
/// end.
pub(crate) fn next_line(from: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    from.take(MAX_LINE_BYTES + 1).read_until(b'\n', &mut bytes)?;
    Ok((!bytes.is_empty()).then_some(bytes))
}

/// Reader for experiment files: iterates over the lines after the plan. An incomplete last line,
/// left by a killed writer, is skipped and reported by [`Reader::is_truncated`].
#[derive(Debug)]
pub struct Reader<R> {
    from: R,
    plan: Plan,
    line: u64,
    truncated: bool,
    done: bool,
}

impl<R: BufRead> Reader<R> {
    /// Opens a file and reads its plan.
    ///
    /// # Errors
    /// When the first line is not a plan, or of an unknown format version.
    pub fn new(from: R) -> Result<Self, SplitError> {
        let empty = || SplitError::File { line: 1, reason: "the file is empty".to_owned() };
        let placeholder = Plan {
            arms: crate::Arms::parse(["a=50%", "b=50%"])?,
            control: "a".to_owned(),
            by: crate::AssignBy::Connection,
            seed: 0,
            min_transfer: fullpipe_units::Bytes(0),
            ports: Vec::new(),
            condition: String::new(),
            cgroup: String::new(),
            guard: crate::Guard::off(),
            began_unix_s: 0.0,
        };
        let mut reader = Reader { from, plan: placeholder, line: 0, truncated: false, done: false };
        match reader.read()?.ok_or_else(empty)? {
            Line::Plan { schema, plan } => {
                let wrong = |reason: String| SplitError::File { line: 1, reason };
                if schema != SCHEMA {
                    return Err(wrong(format!("unknown format {schema:?}, expected {SCHEMA}")));
                }
                plan.check().map_err(|e| wrong(e.to_string()))?;
                reader.plan = plan;
                Ok(reader)
            }
            _ => Err(SplitError::File { line: 1, reason: "expected the plan of an experiment".to_owned() }),
        }
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Whether the last line was incomplete.
    pub fn is_truncated(&self) -> bool {
        self.truncated
    }

    fn read(&mut self) -> Result<Option<Line>, SplitError> {
        self.line += 1;
        let line = self.line;
        let wrong = |reason: String| SplitError::File { line, reason };
        let next = next_line(&mut self.from).map_err(|e| wrong(format!("cannot be read: {e}")))?;
        let Some(text) = next else { return Ok(None) };
        if text.len() as u64 > MAX_LINE_BYTES {
            return Err(wrong(format!("longer than {MAX_LINE_BYTES} bytes")));
        }
        if text.last() != Some(&b'\n') {
            self.truncated = true;
            return Ok(None);
        }
        serde_json::from_slice(&text).map(Some).map_err(|e| wrong(e.to_string()))
    }

    fn checked(&mut self) -> Result<Option<Line>, SplitError> {
        let Some(line) = self.read()? else { return Ok(None) };
        let wrong = |reason: String| Err(SplitError::File { line: self.line, reason });
        let arms = self.plan.arms.all().len();
        match &line {
            Line::Plan { .. } => return wrong("duplicate plan".to_owned()),
            Line::Connection(outcome) => {
                if let Err(reason) = outcome.check(arms) {
                    return wrong(reason);
                }
            }
            Line::Period(period) => {
                if let Err(reason) = period.check(arms) {
                    return wrong(reason);
                }
            }
            Line::Shares { shares, .. } if shares.len() != arms => {
                return wrong(format!("{} shares for {arms} arms", shares.len()));
            }
            Line::Counts(counts) if [&counts.opened, &counts.closed].iter().any(|all| all.len() != arms) => {
                return wrong(format!("counts do not match {arms} arms"));
            }
            Line::Shares { .. } | Line::Counts(_) | Line::End { .. } => {}
        }
        Ok(Some(line))
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Line, SplitError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = self.checked().transpose();
        self.done = !matches!(next, Some(Ok(_)));
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::tests::plan;
    use crate::outcome::example;

    fn file() -> Vec<u8> {
        let mut writer =
            Writer::new(Vec::new(), &plan("client-prefix/24,/56", &["bbr=10%", "cubic=90%"])).unwrap();
        for line in lines() {
            writer.write(&line).unwrap();
        }
        writer.to
    }

    fn lines() -> [Line; 5] {
        [
            Line::Connection(example(1, "[2001:db8::1]:443")),
            Line::Shares {
                generation: 1,
                shares: vec![Fraction::ZERO, Fraction::ONE],
                unix_s: 1e9,
                why: "the guard".to_owned(),
            },
            Line::Period(Period {
                number: 3,
                arm: 1,
                unix_s: 1e9,
                duration_s: 540.0,
                processor_s: 12.34,
                acked_bytes: 5_000_000_000,
            }),
            Line::Counts(Counts {
                opened: vec![1, 2],
                closed: vec![0, 1],
                unwritten: 7,
                ..Counts::default()
            }),
            Line::End { unix_s: 1e9, why: "asked to".to_owned() },
        ]
    }

    #[test]
    fn files_round_trip() {
        let file = file();
        let mut reader = Reader::new(&file[..]).unwrap();
        assert_eq!(reader.plan(), &plan("client-prefix/24,/56", &["bbr=10%", "cubic=90%"]));
        let read: Vec<Line> = reader.by_ref().map(Result::unwrap).collect();
        assert_eq!(read, lines());
        assert!(!reader.is_truncated());
    }

    #[test]
    fn a_truncated_file_is_read_up_to_its_last_complete_line() {
        let file = file();
        let cut = &file[..file.len() - 20];
        let mut reader = Reader::new(cut).unwrap();
        assert_eq!(reader.by_ref().map(Result::unwrap).count(), 4);
        assert!(reader.is_truncated());
    }

    #[test]
    fn invalid_files_are_refused_with_a_line_number() {
        let error = |file: &[u8]| match Reader::new(file) {
            Err(e) => e.to_string(),
            Ok(reader) => reader.filter_map(Result::err).map(|e| e.to_string()).collect(),
        };
        assert!(error(b"").contains("empty"));
        assert!(error(b"{}\n").starts_with("line 1"));
        let text = String::from_utf8(file()).unwrap();
        let with = |from: &str, to: &str| error(text.replacen(from, to, 1).as_bytes());
        assert!(with("split/1", "split/9").contains("split/9"));
        assert!(with("\"arm\":1", "\"arm\":2").contains("line 2: arm 2 of 2"));
        assert!(with("\"processor_s\":12.34", "\"processor_s\":-1").contains("line 4: processor_s is -1"));
        assert!(with("\"number\":3,\"arm\":1", "\"number\":3,\"arm\":2").contains("line 4: arm 2 of 2"));
        assert!(with("\"duration_s\":1.0", "\"duration_s\":-1.0").contains("duration_s"));
        assert!(with("\"control\":\"cubic\"", "\"control\":\"reno\"").contains("reno"));
        assert!(with("[\"0%\",\"100%\"]", "[\"0%\"]").contains("line 3: 1 shares for 2"));
        assert!(error(&vec![b'x'; 70_000]).contains("longer"));
    }

    proptest::proptest! {
        /// As the fuzz target: any file is refused or reported.
        #[test]
        fn any_file_is_refused_or_reported(
            changes in proptest::collection::vec((0usize..4096, 0u8..=255, 0u8..3), 0..12),
        ) {
            let mut file = file();
            for (place, byte, kind) in changes {
                let place = place % file.len();
                match kind {
                    0 => file[place] = byte,
                    // Inserted digits change numbers.
                    1 => file.insert(place, b'0' + byte % 10),
                    _ => drop(file.remove(place)),
                }
            }
            if let Ok(mut reader) = Reader::new(&file[..]) {
                let plan = reader.plan().clone();
                let lines: Vec<_> = reader.by_ref().filter_map(Result::ok).collect();
                let lines = lines.into_iter().map(Ok::<_, SplitError>);
                let report = crate::Report::from_lines(&plan, lines).unwrap();
                let text = crate::terminal(&report);
                proptest::prop_assert!(text.contains(&plan.control));
                serde_json::to_string(&report).unwrap();
            }
        }
    }
}
