//! The file of a split: JSON, a line for what was asked, for each connection that closed, and for what happened meanwhile.

use crate::{Outcome, Plan, SplitError};
use fullpipe_units::Fraction;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Read, Write};

/// The name and version of the form.
pub const SCHEMA: &str = "fullpipe/split/1";
/// No line is as long, bytes.
pub const MOST_LINE: u64 = 64 * 1024;

/// A line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Line {
    /// The first: what was asked.
    Plan {
        /// [`SCHEMA`].
        schema: String,
        /// What was asked.
        plan: Plan,
    },
    /// A connection closed.
    Connection(Outcome),
    /// From here on the shares are others.
    Shares {
        /// Counted from 0; the outcomes of connections that opened under them have it, too.
        generation: u64,
        /// By arm.
        shares: Vec<Fraction>,
        /// When, seconds since 1970.
        unix_s: f64,
        /// By whom and why.
        why: String,
    },
    /// A period of `--by time` is over.
    Period(Period),
    /// What was counted so far.
    Counts(Counts),
    /// The last.
    End {
        /// When, seconds since 1970.
        unix_s: f64,
        /// Why.
        why: String,
    },
}

/// What the whole machine did in a period of `--by time`, from the end of its wash-out on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Period {
    /// Counted from the split's beginning.
    pub number: u64,
    /// The arm whose turn it was.
    pub arm: u8,
    /// When it was over, seconds since 1970.
    pub unix_s: f64,
    /// How long what follows was counted.
    pub duration_s: f64,
    /// What all processors worked, interrupts included (`/proc/stat`), seconds.
    pub processor_s: f64,
    /// Bytes that were acknowledged to connections of the split that closed in it, of whatever arm.
    pub acked_bytes: u64,
}

impl Period {
    /// What is wrong with it, of so many arms.
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

/// What the program in the kernel counted since it began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// When this was, seconds since 1970.
    pub unix_s: f64,
    /// Connections that were given each arm.
    pub opened: Vec<u64>,
    /// Of these, those that closed.
    pub closed: Vec<u64>,
    /// Bytes that were acknowledged to those that closed, SYN and FIN counted in.
    pub acked_bytes: Vec<u64>,
    /// Payload that those sent again, bytes.
    pub resent_bytes: Vec<u64>,
    /// Segments that those sent again.
    pub resent_segments: Vec<u64>,
    /// Connections that the kernel refused the arm's controller: they are in no arm.
    pub refused: Vec<u64>,
    /// Left alone because their program had chosen a controller.
    pub program_chose: u64,
    /// Left alone because their route names one.
    pub route_chose: u64,
    /// Those that no arm has a share of.
    pub outside: u64,
    /// Those that were not asked for: of other local ports or ends.
    pub other_ports: u64,
    /// Those that opened while nobody renewed the lease.
    pub lapsed: u64,
    /// Closed, but not recorded, because the ring was full.
    pub lost: u64,
}

/// Writes the lines of a split.
#[derive(Debug)]
pub struct Writer<W: Write>(W);

impl<W: Write> Writer<W> {
    /// Begins with the plan.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn new(to: W, plan: &Plan) -> io::Result<Self> {
        let mut writer = Writer(to);
        writer.write(&Line::Plan { schema: SCHEMA.to_owned(), plan: plan.clone() })?;
        Ok(writer)
    }

    /// Writes a line.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&mut self, line: &Line) -> io::Result<()> {
        serde_json::to_writer(&mut self.0, line)?;
        self.0.write_all(b"\n")
    }

    /// Hands everything on.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// The next line with what ends it; no more of one that is longer than [`MOST_LINE`] than tells that. None: the end.
pub(crate) fn next_line(from: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    from.take(MOST_LINE + 1).read_until(b'\n', &mut bytes)?;
    Ok((!bytes.is_empty()).then_some(bytes))
}

/// Reads the lines of a split after the first. The last line may be torn, where its writer was killed: it is left out, and
/// [`Reader::is_torn`] says so.
#[derive(Debug)]
pub struct Reader<R> {
    from: R,
    plan: Plan,
    line: u64,
    torn: bool,
    over: bool,
}

impl<R: BufRead> Reader<R> {
    /// Reads the first line.
    ///
    /// # Errors
    /// When it is not that of a split, or of a form that is not known here.
    pub fn new(from: R) -> Result<Self, SplitError> {
        let nothing = || SplitError::File { line: 1, reason: "no file of a split: it is empty".to_owned() };
        let placeholder = Plan {
            arms: crate::Arms::parse(["a=50%", "b=50%"])?,
            control: "a".to_owned(),
            by: crate::By::Connection,
            seed: 0,
            least: fullpipe_units::Bytes(0),
            ports: Vec::new(),
            only: String::new(),
            cgroup: String::new(),
            guard: crate::Guard::off(),
            began_unix_s: 0.0,
        };
        let mut reader = Reader { from, plan: placeholder, line: 0, torn: false, over: false };
        match reader.read()?.ok_or_else(nothing)? {
            Line::Plan { schema, plan } => {
                let wrong = |reason: String| SplitError::File { line: 1, reason };
                if schema != SCHEMA {
                    return Err(wrong(format!("the form {schema:?} is not known; {SCHEMA} is")));
                }
                plan.check().map_err(|e| wrong(e.to_string()))?;
                reader.plan = plan;
                Ok(reader)
            }
            _ => Err(SplitError::File { line: 1, reason: "a split begins with its plan".to_owned() }),
        }
    }

    /// What was asked.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Whether the last line was cut off.
    pub fn is_torn(&self) -> bool {
        self.torn
    }

    fn read(&mut self) -> Result<Option<Line>, SplitError> {
        self.line += 1;
        let line = self.line;
        let wrong = |reason: String| SplitError::File { line, reason };
        let next = next_line(&mut self.from).map_err(|e| wrong(format!("cannot be read: {e}")))?;
        let Some(text) = next else { return Ok(None) };
        if text.len() as u64 > MOST_LINE {
            return Err(wrong(format!("longer than {MOST_LINE} bytes")));
        }
        if text.last() != Some(&b'\n') {
            self.torn = true;
            return Ok(None);
        }
        serde_json::from_slice(&text).map(Some).map_err(|e| wrong(e.to_string()))
    }

    fn checked(&mut self) -> Result<Option<Line>, SplitError> {
        let Some(line) = self.read()? else { return Ok(None) };
        let wrong = |reason: String| Err(SplitError::File { line: self.line, reason });
        let arms = self.plan.arms.all().len();
        match &line {
            Line::Plan { .. } => return wrong("a second plan".to_owned()),
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
                return wrong(format!("{} shares of {arms} arms", shares.len()));
            }
            Line::Counts(counts) if [&counts.opened, &counts.closed].iter().any(|all| all.len() != arms) => {
                return wrong(format!("counts that are not of {arms} arms"));
            }
            Line::Shares { .. } | Line::Counts(_) | Line::End { .. } => {}
        }
        Ok(Some(line))
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Line, SplitError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let next = self.checked().transpose();
        self.over = !matches!(next, Some(Ok(_)));
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
        writer.0
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
            Line::Counts(Counts { opened: vec![1, 2], closed: vec![0, 1], ..Counts::default() }),
            Line::End { unix_s: 1e9, why: "asked to".to_owned() },
        ]
    }

    #[test]
    fn what_is_written_is_read_again() {
        let file = file();
        let mut reader = Reader::new(&file[..]).unwrap();
        assert_eq!(reader.plan(), &plan("client-prefix/24,/56", &["bbr=10%", "cubic=90%"]));
        let read: Vec<Line> = reader.by_ref().map(Result::unwrap).collect();
        assert_eq!(read, lines());
        assert!(!reader.is_torn());
    }

    #[test]
    fn a_file_that_was_cut_off_is_read_as_far_as_it_goes() {
        let file = file();
        let cut = &file[..file.len() - 20];
        let mut reader = Reader::new(cut).unwrap();
        assert_eq!(reader.by_ref().map(Result::unwrap).count(), 4);
        assert!(reader.is_torn());
    }

    #[test]
    fn what_is_no_split_is_refused_with_its_line() {
        let told = |file: &[u8]| match Reader::new(file) {
            Err(e) => e.to_string(),
            Ok(reader) => reader.filter_map(Result::err).map(|e| e.to_string()).collect(),
        };
        assert!(told(b"").contains("empty"));
        assert!(told(b"{}\n").starts_with("line 1"));
        let text = String::from_utf8(file()).unwrap();
        let with = |from: &str, to: &str| told(text.replacen(from, to, 1).as_bytes());
        assert!(with("split/1", "split/9").contains("split/9"));
        assert!(with("\"arm\":1", "\"arm\":2").contains("line 2: arm 2 of 2"));
        assert!(with("\"processor_s\":12.34", "\"processor_s\":-1").contains("line 4: processor_s is -1"));
        assert!(with("\"number\":3,\"arm\":1", "\"number\":3,\"arm\":2").contains("line 4: arm 2 of 2"));
        assert!(with("\"duration_s\":1.0", "\"duration_s\":-1.0").contains("duration_s"));
        assert!(with("\"control\":\"cubic\"", "\"control\":\"reno\"").contains("reno"));
        assert!(with("[\"0%\",\"100%\"]", "[\"0%\"]").contains("line 3: 1 shares of 2"));
        assert!(told(&vec![b'x'; 70_000]).contains("longer"));
    }

    proptest::proptest! {
        /// What the fuzz target asks of more bytes: refused, or reported.
        #[test]
        fn no_file_is_too_strange_to_be_refused_or_reported(
            changes in proptest::collection::vec((0usize..4096, 0u8..=255, 0u8..3), 0..12),
        ) {
            let mut file = file();
            for (place, byte, how) in changes {
                let place = place % file.len();
                match how {
                    0 => file[place] = byte,
                    // Digits make other numbers, longer ones among them.
                    1 => file.insert(place, b'0' + byte % 10),
                    _ => drop(file.remove(place)),
                }
            }
            if let Ok(mut reader) = Reader::new(&file[..]) {
                let plan = reader.plan().clone();
                let lines: Vec<_> = reader.by_ref().filter_map(Result::ok).collect();
                let report = crate::Report::of(&plan, lines.into_iter().map(Ok::<_, SplitError>)).unwrap();
                let told = crate::terminal(&report);
                proptest::prop_assert!(told.contains(&plan.control));
                serde_json::to_string(&report).unwrap();
            }
        }
    }
}
