//! Who may speak for a shift, and what each of them says of the newest periods.

use super::Watch;
use crate::record::Pair;
use crate::see::change::{Metric, Quantity};
use crate::see::counts::Counts;
use crate::see::series::{RECENT, Series};

/// A controller or probes that say less have not noticed.
const NOTICED: f64 = 2.0;
/// The most that the probes of one period may say: losses come in bursts.
const PROBES_SAY: f64 = 5.0;
/// The most that goodputs or retransmissions of one controller may say, when it has been followed for an hour and for three: less than
/// enough, for it may have a mode that was not seen yet.
const CONTROLLER_SAYS: [f64; 2] = [8.0, 14.0];
/// Fewer probes do not tell which share is usual: with bursts of loss that takes half an hour.
const PROBES_FEWEST: u64 = 3600;
/// A mode that was not seen yet does not slow a controller this much (the logarithm of eight times).
const NO_MODE: f64 = 2.08;
/// Fewer transfers do not tell how often a controller takes too long.
const LATE_FEWEST: u64 = 180;
/// The most that one transfer which took too long may say.
const LATE_SAYS: f64 = 8.0;

/// All that may speak for one way of one metric of a direction.
pub(super) struct Witnesses<'a> {
    tick: u64,
    controllers: usize,
    metric: Metric,
    up: bool,
    /// What the metric is seen by, of this direction or both.
    members: Vec<(Quantity, Pair, &'a Series)>,
    /// Rates of the controllers, and their transfers that took too long. Losses slow who takes them for congestion, and more than they
    /// are seen by: until its transfers no longer arrive in time, and tell nothing else.
    slowed: &'a [Series],
    late: &'a [Counts],
    /// Enough of them to tell.
    probes: Option<&'a Counts>,
}

impl<'a> Witnesses<'a> {
    pub fn of(watch: &'a Watch, pair: Pair, metric: Metric, up: bool) -> Self {
        let losing = metric == Metric::Loss && up;
        let track = watch.tracks.get(&pair).filter(|_| losing);
        let probes = track
            .map(|track| &track.probes)
            .filter(|probes| probes.newest() == Some(watch.tick) && probes.rests_on() > PROBES_FEWEST);
        Witnesses {
            tick: watch.tick,
            controllers: watch.controllers,
            metric,
            up,
            members: watch.members(pair, metric),
            slowed: track.map_or(&[], |track| &track.rates),
            late: track.map_or(&[], |track| &track.late),
            probes,
        }
    }

    /// No number of newest periods says more than this.
    pub fn loudest(&self) -> f64 {
        self.members.iter().map(|(.., series)| series.loudest(self.up)).sum::<f64>()
            + self.slowed.iter().map(|series| series.loudest(false)).sum::<f64>()
            + self.late.iter().filter(|late| late.share(1) > 0.0).count() as f64 * LATE_SAYS
            + self.probes.map_or(0.0, |probes| {
                PROBES_SAY * probes.last(RECENT).filter(|(hits, _)| *hits > 0).count() as f64
            })
    }

    fn is_fresh(&self, series: &Series) -> bool {
        series.newest() == Some(self.tick) && series.level().is_some()
    }

    /// What the `k` newest periods say together.
    pub fn say(&self, k: usize) -> Option<Scored> {
        let mut heard = Heard { shared: 0.0, own: vec![Word::default(); self.controllers], begin: None };
        self.hear_members(k, &mut heard);
        self.hear_slowed(k, &mut heard);
        let mut evidence = heard.shared + heard.own.iter().map(Word::bounded).sum::<f64>();
        let mut noticed = heard.own.iter().filter(|word| word.says >= NOTICED).count();
        if let Some(probes) = self.probes {
            let likely = (3.0 * probes.usual()).max(probes.usual() + 0.005).min(0.9);
            let says = probes.evidence(k, likely, PROBES_SAY).max(-PROBES_SAY);
            noticed += usize::from(says >= NOTICED);
            evidence += says;
        }
        let begin = heard.begin.or_else(|| self.probes.and_then(|probes| probes.tick_of(k)))?;
        let alone = noticed < 2 && self.controllers > 1 && self.metric != Metric::Rtt;
        Some(Scored { k, evidence, begin, alone })
    }

    fn hear_members(&self, k: usize, heard: &mut Heard) {
        for (quantity, _, series) in self.members.iter().filter(|(.., series)| self.is_fresh(series)) {
            // A series that misses periods does not speak of what was long ago.
            let Some(tick) = series.tick_of(k).filter(|tick| self.tick - tick <= 2 * k as u64) else {
                continue;
            };
            let says = series.evidence(k, self.up);
            match quantity {
                Quantity::Goodput(cc) | Quantity::Retransmitted(cc) => {
                    heard.own[usize::from(*cc)].add(says, own_word(series));
                }
                _ => heard.shared += says,
            }
            heard.begin = heard.begin.max(Some(tick));
        }
    }

    fn hear_slowed(&self, k: usize, heard: &mut Heard) {
        for (cc, series) in self.slowed.iter().enumerate().filter(|(_, series)| self.is_fresh(series)) {
            heard.own[cc].add(series.evidence(k, false).max(0.0), own_word(series));
        }
        for (cc, late) in self.late.iter().enumerate() {
            if late.newest() != Some(self.tick) || !is_late(late, k) {
                continue;
            }
            heard.begin = heard.begin.max(late.tick_of(k));
            let says = heard.own[cc].says.max(late.evidence(k, 0.9, LATE_SAYS));
            heard.own[cc] = Word { says, most: f64::INFINITY };
        }
    }

    /// Whether one of them saw in the `k` newest periods what anybody wants to hear of.
    pub fn saw_what_matters(&self, k: usize) -> bool {
        let speaks = |series: &Series| self.is_fresh(series) && series.evidence(k, self.up) > 0.0;
        self.probes.is_some_and(|probes| probes.share(k) - probes.usual() >= 0.003)
            || self.late.iter().any(|late| is_late(late, k) && late.usual() < 0.5)
            || self
                .members
                .iter()
                .any(|(quantity, _, series)| speaks(series) && matters(*quantity, series, k, self.up))
    }
}

/// What so many newest periods say together.
#[derive(Clone, Copy)]
pub(super) struct Scored {
    pub k: usize,
    pub evidence: f64,
    pub begin: u64,
    pub alone: bool,
}

/// What was heard of so many newest periods, while it is added up.
struct Heard {
    /// What is no controller's.
    shared: f64,
    /// What each controller says of itself, by all that it is seen by.
    own: Vec<Word>,
    /// The tick of the first of these periods.
    begin: Option<u64>,
}

/// What a controller says of itself.
#[derive(Clone, Copy, Default)]
struct Word {
    says: f64,
    /// The most that it may, for and against.
    most: f64,
}

impl Word {
    fn add(&mut self, says: f64, most: f64) {
        *self = Word { says: self.says + says, most: self.most.max(most) };
    }

    fn bounded(&self) -> f64 {
        self.says.clamp(-self.most, self.most)
    }
}

/// Whether nearly all transfers of the `k` newest periods took too long, of a controller of which that can be told.
fn is_late(late: &Counts, k: usize) -> bool {
    late.rests_on() >= LATE_FEWEST && late.share(k) >= 0.9
}

/// Whether a shift is one that anybody wants to hear of.
fn matters(quantity: Quantity, series: &Series, k: usize, up: bool) -> bool {
    let (Some(effect), Some(level)) = (series.effect(k), series.level()) else { return false };
    if (effect > 0.0) != up {
        return false;
    }
    let after = level.median + effect;
    match quantity {
        // A fifth.
        Quantity::Best | Quantity::Goodput(_) => effect.abs() >= 0.22,
        Quantity::Retransmitted(_) => {
            effect.abs() >= 0.4 && (after.exp() - level.median.exp()).abs() >= 0.003
        }
        // A tenth, and two milliseconds.
        Quantity::Rtt => effect.abs() >= 0.1 && (after.exp() - level.median.exp()).abs() >= 2.0,
        Quantity::Asymmetry => effect.abs() >= 0.4,
        Quantity::ProbesLost | Quantity::Failed => true,
    }
}

/// The most that a controller may say of itself.
fn own_word(series: &Series) -> f64 {
    let [least, most] = CONTROLLER_SAYS;
    if series.effect(2).is_some_and(|effect| effect < -NO_MODE) {
        return f64::INFINITY;
    }
    least + (most - least) * ((series.rests_on() as f64 - 60.0) / 120.0).clamp(0.0, 1.0)
}
