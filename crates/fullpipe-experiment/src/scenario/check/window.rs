//! A time window of a run, and the values in it.

use crate::recording::{FlowRecording, Series};
use fullpipe_units::Span;

/// A time window of a run.
pub(super) struct Window {
    pub(super) from: Option<Span>,
    pub(super) to: Option<Span>,
}

impl Window {
    fn contains(&self, t_s: f64) -> bool {
        self.from.is_none_or(|from| t_s > from.as_secs_f64())
            && self.to.is_none_or(|to| t_s <= to.as_secs_f64())
    }

    pub(super) fn values<'a>(&'a self, series: &'a Series, name: &str) -> impl Iterator<Item = f64> + 'a {
        let values = series.get(name).unwrap_or(&[]);
        series.t_s.iter().zip(values).filter(|(t, v)| self.contains(**t) && v.is_finite()).map(|(_, v)| *v)
    }

    pub(super) fn mean(&self, series: &Series, name: &str) -> f64 {
        let (sum, n) = self.values(series, name).fold((0.0, 0u32), |(s, n), v| (s + v, n + 1));
        if n == 0 { f64::NAN } else { sum / f64::from(n) }
    }

    /// The increase of a cumulative count.
    pub(super) fn increase(&self, series: &Series, name: &str) -> f64 {
        let last = self.values(series, name).last().unwrap_or(f64::NAN);
        let values = series.get(name).unwrap_or(&[]);
        let before = series
            .t_s
            .iter()
            .zip(values)
            .take_while(|(t, _)| self.from.is_some_and(|from| **t <= from.as_secs_f64()))
            .last()
            .map_or(0.0, |(_, v)| *v);
        last - before
    }

    /// The states a flow was in, the one at the window's start included.
    pub(super) fn states<'a>(&self, flow: &'a FlowRecording) -> Vec<&'a str> {
        let mut seen: Vec<&str> = Vec::new();
        for (i, change) in flow.states.iter().enumerate() {
            let until = flow.states.get(i + 1).map_or(f64::INFINITY, |next| next.at_s);
            let begins_before_the_end = self.to.is_none_or(|to| change.at_s <= to.as_secs_f64());
            let ends_after_the_start = self.from.is_none_or(|from| until > from.as_secs_f64());
            if begins_before_the_end && ends_after_the_start {
                seen.push(&change.state);
            }
        }
        seen
    }
}
