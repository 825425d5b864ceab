//! Paths of the families on which the naming of controllers is measured.

use fullpipe_experiment::scenario::{FlowSpec, PathSpec, Scenario, Start};
use fullpipe_path::{
    AggregateSpec, CodelSpec, Distribution, FqCodelSpec, JitterSpec, Limit, LossSpec, PieSpec, QueueSpec,
    ScheduledChange,
};
use fullpipe_units::{Fraction, Rate, Span};

/// Random numbers from a seed (splitmix64).
pub struct Draw(pub u64);

impl Draw {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// 0 to 1.
    pub fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
    /// Log-uniform between `from` and `to`.
    pub fn between(&mut self, from: f64, to: f64) -> f64 {
        from * (to / from).powf(self.share())
    }
    /// One of `all`.
    pub fn one<T: Clone>(&mut self, all: &[T]) -> T {
        all[(self.next() % all.len() as u64) as usize].clone()
    }
}

/// A family of paths.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Family {
    /// A constant rate and a drop-tail queue, used alone.
    Constant,
    /// The same with one to three other connections.
    Shared,
    /// A rate that changes.
    Varying,
    /// A queue that drops or marks early.
    Managed,
    /// Packets and ACKs in bunches, thinned ACKs, jitter.
    Bunched,
}

impl Family {
    pub const ALL: [Family; 5] =
        [Family::Constant, Family::Shared, Family::Varying, Family::Managed, Family::Bunched];

    /// A scenario of this family with one flow to name, the first: 3 to 40 Mbit/s, 10 to 100 ms, a
    /// queue of 0.5 to 4 BDP, 8 to 15 s.
    pub fn scenario(self, draw: &mut Draw) -> Scenario {
        let rate = draw.between(3e6, 40e6);
        let rtt = draw.between(0.01, 0.1);
        let bdp = rate / 8.0 * rtt;
        let queue = Limit::Bytes((draw.between(0.5, 4.0) * bdp).max(15_000.0) as u64);
        let seconds = draw.between(8.0, 15.0);
        let round_trip = Span::from_secs_f64(rtt);
        let bits = |rate: f64| Rate::from_bits_per_sec(rate as u64);
        let mut path = PathSpec::bottleneck(bits(rate), round_trip, queue);
        let loss = draw.one(&[0.0, 0.0, 0.0, 0.0, 2e-4, 1e-3]);
        if loss > 0.0 {
            path.forward[0].loss = Some(LossSpec::from(Fraction::from_billionths((loss * 1e9) as u32)));
        }
        let mut flows = vec![FlowSpec::bulk("bbr")];
        match self {
            Family::Constant => {}
            Family::Shared => {
                for n in 0..draw.one(&[1, 1, 1, 2, 3]) {
                    let mut other = FlowSpec::bulk(draw.one(&["cubic", "cubic", "reno", "bbr", "bbr3"]));
                    other.label = Some(format!("other {n}"));
                    other.start =
                        Start::At(Span::from_secs_f64(draw.one(&[0.0, 0.0, 1.0]) * draw.share() * 4.0));
                    flows.push(other);
                }
            }
            Family::Varying => {
                let often = draw.one(&[false, false, true]);
                let mut at = 0.0;
                loop {
                    at += if often { draw.between(0.3, 1.5) } else { draw.between(2.0, 6.0) };
                    if at > seconds - 1.0 {
                        break;
                    }
                    let factor = draw.between(0.35, 1.0);
                    let over = draw.one(&[None, None, Some(Span::from_millis(300))]);
                    path.forward[0].schedule.push(ScheduledChange {
                        at: Span::from_secs_f64(at),
                        over: if often { None } else { over },
                        rate: Some(bits(rate * factor)),
                        ..ScheduledChange::default()
                    });
                }
            }
            Family::Managed => {
                let ecn = draw.one(&[false, true]);
                flows[0].ecn = ecn;
                path.forward[0].queue = Some(match draw.next() % 3 {
                    0 => QueueSpec::Codel(CodelSpec { ecn, ..CodelSpec::default() }),
                    1 => QueueSpec::FqCodel(FqCodelSpec { ecn, ..FqCodelSpec::default() }),
                    _ => QueueSpec::Pie(PieSpec { ecn, ..PieSpec::default() }),
                });
            }
            Family::Bunched => {
                let ms = |v: f64| Span::from_secs_f64(v / 1e3);
                let kind = draw.next() % 4;
                if kind <= 1 {
                    let hold = Some(ms(draw.between(2.0, 12.0)));
                    let thin = draw.one(&[None, None, Some(8)]);
                    let burst =
                        AggregateSpec { hold, max: Some(draw.one(&[16, 32, 64])), ..Default::default() };
                    if kind == 0 {
                        path.forward[0].aggregate = Some(burst);
                    }
                    path.reverse[0].aggregate = Some(AggregateSpec { thin, ..burst });
                } else {
                    let spread = ms(draw.between(1.0, 5.0));
                    let distribution =
                        draw.one(&[Distribution::Normal, Distribution::Uniform, Distribution::Pareto]);
                    let jitter = Some(JitterSpec { spread, distribution, reorder: false });
                    path.forward[0].jitter = jitter;
                    if kind == 3 {
                        path.reverse[0].jitter = jitter;
                    }
                }
            }
        }
        let mut scenario = Scenario::new(path, flows);
        scenario.duration = Span::from_secs_f64(seconds);
        scenario.sample = scenario.duration;
        scenario
    }
}
