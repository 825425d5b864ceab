//! The tracked quantities of each direction.

use super::Detector;
use crate::analysis::change::{Metric, Quantity};
use crate::analysis::counts::Counts;
use crate::analysis::periods::Period;
use crate::analysis::series::Series;
use crate::record::{Minute, Outcome, Pair, Transfer, TransferError};
use std::collections::BTreeMap;

/// Retransmission shares below this matter little; added before taking the logarithm.
pub(super) const SHARE_FLOOR: f64 = 1e-3;
/// Baseline for late transfers: rare events take a day to estimate.
const LATE_WINDOW: u16 = 1440;

/// The tracked quantities of a direction.
#[derive(Clone, Debug)]
pub(super) struct Track {
    pub best: Series,
    pub rates: Vec<Series>,
    pub retransmitted: Vec<Series>,
    /// Timed-out transfers of each controller.
    pub late: Vec<Counts>,
    pub probes: Counts,
    pub failed: Counts,
    pub rtt: Series,
    /// Tracked for the lower direction only.
    pub asymmetry: Series,
}

impl Track {
    fn new(controllers: usize) -> Self {
        Track {
            best: Series::new(0.05),
            rates: vec![Series::new(0.05); controllers],
            retransmitted: vec![Series::new(0.25); controllers],
            late: vec![Counts::over(LATE_WINDOW); controllers],
            probes: Counts::default(),
            failed: Counts::default(),
            rtt: Series::new(0.02),
            asymmetry: Series::new(0.1),
        }
    }

    /// The series of a quantity; `None` for counted quantities.
    fn series(&self, quantity: Quantity) -> Option<&Series> {
        match quantity {
            Quantity::Best => Some(&self.best),
            Quantity::Goodput(cc) => self.rates.get(usize::from(cc)),
            Quantity::Retransmitted(cc) => self.retransmitted.get(usize::from(cc)),
            Quantity::Rtt => Some(&self.rtt),
            Quantity::Asymmetry => Some(&self.asymmetry),
            Quantity::ProbesLost | Quantity::Failed => None,
        }
    }

    fn series_mut(&mut self, quantity: Quantity) -> Option<&mut Series> {
        match quantity {
            Quantity::Best => Some(&mut self.best),
            Quantity::Goodput(cc) => self.rates.get_mut(usize::from(cc)),
            Quantity::Retransmitted(cc) => self.retransmitted.get_mut(usize::from(cc)),
            Quantity::Rtt => Some(&mut self.rtt),
            Quantity::Asymmetry => Some(&mut self.asymmetry),
            Quantity::ProbesLost | Quantity::Failed => None,
        }
    }
}

impl Detector {
    /// Records a period.
    pub(super) fn record(&mut self, period: &Period<'_>) {
        let mut best: BTreeMap<Pair, f64> = BTreeMap::new();
        for transfer in &period.transfers {
            if usize::from(transfer.controller) >= self.controllers || transfer.pair.from == transfer.pair.to
            {
                continue;
            }
            if let Some(log) = self.record_transfer(transfer) {
                best.entry(transfer.pair).and_modify(|most| *most = most.max(log)).or_insert(log);
            }
        }
        self.record_best(&best);
        for minute in period.minutes.iter().filter(|minute| minute.pair.from != minute.pair.to) {
            self.record_minute(minute);
        }
    }

    /// Records a transfer; returns the logarithm of its rate, if it progressed.
    fn record_transfer(&mut self, transfer: &Transfer) -> Option<f64> {
        let (tick, controllers) = (self.tick, self.controllers);
        let cc = usize::from(transfer.controller);
        let track = self.tracks.entry(transfer.pair).or_insert_with(|| Track::new(controllers));
        match &transfer.outcome {
            Outcome::Done(done) => {
                track.failed.push(tick, 0, 1);
                let bits = done.bytes as f64 * 8.0;
                self.slow_bps = self.slow_bps.max(bits / self.period.as_secs_f64().max(1e-3));
                let log = done.goodput().as_bits_per_sec_f64().max(1.0).ln();
                track.rates[cc].push(tick, log);
                track.late[cc].push(tick, 0, 1);
                if done.segments > 0 {
                    track.retransmitted[cc].push(tick, (done.retransmitted_share() + SHARE_FLOOR).ln());
                }
                Some(log)
            }
            // The transfer progressed, slower than this.
            Outcome::Failed(TransferError::TooSlow) if self.slow_bps > 0.0 => {
                track.failed.push(tick, 0, 1);
                track.late[cc].push(tick, 1, 1);
                let log = self.slow_bps.ln();
                track.rates[cc].push(tick, log);
                Some(log)
            }
            // Not caused by the path.
            Outcome::Failed(
                TransferError::SenderBudget
                | TransferError::ReceiverBudget
                | TransferError::Busy
                | TransferError::NoSuchController,
            ) => None,
            Outcome::Failed(_) => {
                track.failed.push(tick, 1, 1);
                None
            }
        }
    }

    /// Records the best controller's log goodput of each direction.
    fn record_best(&mut self, best: &BTreeMap<Pair, f64>) {
        let tick = self.tick;
        for (&pair, &forward) in best {
            let backward = (pair.from < pair.to).then(|| best.get(&pair.reversed())).flatten();
            let Some(track) = self.tracks.get_mut(&pair) else { continue };
            track.best.push(tick, forward);
            if let Some(backward) = backward {
                track.asymmetry.push(tick, forward - backward);
            }
        }
    }

    /// Records a probe minute: losses in each direction, and RTTs.
    fn record_minute(&mut self, minute: &Minute) {
        let (tick, controllers) = (self.tick, self.controllers);
        for pair in [minute.pair, minute.pair.reversed()] {
            self.tracks.entry(pair).or_insert_with(|| Track::new(controllers));
        }
        let [sent, arrived, answered] = [minute.sent, minute.arrived, minute.answered].map(u32::from);
        // A total loss is a failure, which transfers report.
        if arrived > 0 {
            let lost = [(minute.pair, sent, arrived), (minute.pair.reversed(), arrived, answered)];
            for (pair, sent, arrived) in lost {
                if let Some(track) = self.tracks.get_mut(&pair) {
                    track.probes.push(tick, sent.saturating_sub(arrived), sent);
                }
            }
        }
        if let Some(rtt) = minute.rtt
            && let Some(track) = self.tracks.get_mut(&minute.pair)
        {
            track.rtt.push(tick, rtt.p50.as_millis_f64().max(1e-3).ln());
        }
    }

    /// The series that contribute to a metric, with their quantities.
    pub(super) fn members(&self, pair: Pair, metric: Metric) -> Vec<(Quantity, Pair, &Series)> {
        let track = |pair| self.tracks.get(&pair);
        let of = |series: &'_ [Series], name: fn(u16) -> Quantity| -> Vec<(Quantity, Pair)> {
            (0..series.len()).map(|cc| (name(cc as u16), pair)).collect()
        };
        let names = match (metric, track(pair)) {
            (Metric::Rate, Some(track)) => {
                [vec![(Quantity::Best, pair)], of(&track.rates, Quantity::Goodput)].concat()
            }
            (Metric::Loss, Some(track)) => of(&track.retransmitted, Quantity::Retransmitted),
            (Metric::Rtt, _) => vec![(Quantity::Rtt, pair), (Quantity::Rtt, pair.reversed())],
            (Metric::Asymmetry, _) => vec![(Quantity::Asymmetry, pair)],
            _ => Vec::new(),
        };
        names.into_iter().filter_map(|(name, at)| Some((name, at, self.series(name, at)?))).collect()
    }

    pub(super) fn series(&self, quantity: Quantity, pair: Pair) -> Option<&Series> {
        self.tracks.get(&pair)?.series(quantity)
    }

    pub(super) fn series_mut(&mut self, quantity: Quantity, pair: Pair) -> Option<&mut Series> {
        self.tracks.get_mut(&pair)?.series_mut(quantity)
    }
}
