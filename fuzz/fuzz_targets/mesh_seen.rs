//! Records from a member of a mesh, and a store that a user gives to `fullpipe probe report` or
//! `export`: any content is reported in text, in finite numbers, and in tables with one row per
//! record.
#![no_main]

use fullpipe_mesh::export::{self, Values};
use fullpipe_mesh::message::Table;
use fullpipe_mesh::record::{
    History, Measurement, Minute, Outcome, Pair, Route, RttBand, Transfer, TransferError,
};
use fullpipe_mesh::report::{Report, Summary, figure, page, terminal};
use fullpipe_report::About;
use fullpipe_units::{Rate, Span};
use libfuzzer_sys::fuzz_target;

/// More records than this take long, and tell nothing that fewer do not.
const MOST: usize = 400;

/// Numbers of every size out of bytes.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn number(&mut self) -> Option<u64> {
        let (shift, low) = (self.byte()?, u64::from(self.byte()?));
        Some(if shift & 0x80 == 0 { low << (shift & 0x3f) } else { u64::MAX - (low << (shift & 0x3f)) })
    }

    fn span(&mut self) -> Option<Span> {
        self.number().map(Span::from_nanos)
    }

    fn pair(&mut self) -> Option<Pair> {
        let byte = u16::from(self.byte()?);
        Some(Pair { from: byte & 3, to: byte >> 2 & 3 })
    }

    fn measured(&mut self) -> Option<Measurement> {
        Some(Measurement {
            bytes: self.number()?,
            duration: self.span()?,
            delivery_rate: self.number().map(Rate::from_bytes_per_sec),
            rtt: self.span()?,
            min_rtt: self.span()?,
            segments: self.number()? as u32,
            retransmitted: self.number()? as u32,
            receive_window_limited: f32::from_bits(self.number()? as u32),
            send_buffer_limited: 0.5,
            cpu: self.span()?,
        })
    }

    /// What happened in a period, in as many of them as it says.
    fn happened(&mut self, history: &mut History, now: &mut i64) -> Option<()> {
        const TRANSFER_ERRORS: [TransferError; 6] = [
            TransferError::Unreachable,
            TransferError::TooSlow,
            TransferError::Broken,
            TransferError::Busy,
            TransferError::MtuBlackHole,
            TransferError::SenderBudget,
        ];
        let (kind, times) = (self.byte()?, self.byte()?);
        let pair = self.pair()?;
        let long = i64::try_from(history.period.as_nanos() / 1_000_000).unwrap_or(i64::MAX).max(1);
        let controller = u16::from(kind >> 4 & 3);
        let outcome = match kind & 7 {
            0..=3 => Outcome::Done(Box::new(self.measured()?)),
            n => Outcome::Failed(TRANSFER_ERRORS[usize::from(n + (kind >> 6)) % TRANSFER_ERRORS.len()]),
        };
        let [sent, arrived, answered] = [self.number()?, self.number()?, self.number()?].map(|n| n as u16);
        let rtt = match kind & 8 {
            0 => None,
            _ => Some(RttBand { min: self.span()?, p50: self.span()?, p95: self.span()?, max: self.span()? }),
        };
        let hop = [u8::MAX, kind, times, 1].into();
        for _ in 0..=times % 64 {
            let at_ms = *now;
            history.transfers.push(Transfer {
                at_ms,
                period: at_ms.div_euclid(long),
                pair,
                controller,
                outcome: outcome.clone(),
            });
            history.minutes.push(Minute { at_ms, pair, sent, arrived, answered, rtt });
            if history.transfers.len() > MOST {
                return None;
            }
            *now = now.saturating_add(long);
        }
        // As long as it took, so that sites speak of the same time; or somewhere else entirely.
        match times >> 6 {
            0 => {}
            1 => *now = self.number()? as i64,
            _ => *now = now.saturating_sub(long.saturating_mul(i64::from(times % 64) + 1)),
        }
        history.routes.push(Route { at_ms: *now, pair, hops: vec![None, Some(hop)] });
        Some(())
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let (Some(shape), Some(period), Some(start)) = (input.byte(), input.number(), input.number()) else {
        return;
    };
    let names =
        |all: [&str; 4], n: u8| all.iter().take(usize::from(n)).map(|name| (*name).to_owned()).collect();
    let mut history = History {
        sites: names(["lab", "sea", "sun", "ice"], 1 + (shape & 3)),
        controllers: names(["cubic", "bbr", "bbr3", "reno"], shape >> 2 & 3),
        period: Span::from_nanos(period),
        ..History::default()
    };
    let mut now = start as i64;
    while input.happened(&mut history, &mut now).is_some() {}
    history.transfers.sort_by_key(|t| t.at_ms);
    history.minutes.sort_by_key(|m| m.at_ms);
    history.routes.sort_by_key(|r| r.at_ms);

    let report = Report::new(&history, None);
    let _ = terminal(&report);
    serde_json::to_string(&report).expect("it is JSON");
    for (table, rows) in
        Table::ALL.into_iter().zip([history.transfers.len(), history.minutes.len(), history.routes.len()])
    {
        let columns = export::columns(&history, table);
        for column in &columns {
            let values = match &column.values {
                Values::Text(values) => values.len(),
                Values::Whole(values) => values.len(),
                Values::Number(values) => values.len(),
            };
            assert_eq!(values, rows, "{}", column.name);
        }
        export::csv(&columns, &mut std::io::sink()).expect("a sink takes everything");
    }
    // A page takes as long as all else here a hundred times: an input in sixty-four has one.
    if shape >> 4 == 0 && period % 4 == 0 {
        let _ = (page(&Summary::from(&history), &report, &About::default()), figure(&report).svg());
    }
});
