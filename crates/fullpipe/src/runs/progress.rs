//! A bar on stderr, if that is a terminal and the runs take more than a moment.

use super::interrupt;
use fullpipe_run::{Job, Watch};
use fullpipe_units::Span;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Shows how far a batch is; Ctrl-C asks it to stop.
pub struct Progress {
    bar: ProgressBar,
    runs: usize,
    finished: AtomicUsize,
}

impl Progress {
    /// Of these runs, none of which has begun.
    pub fn of(jobs: &[Job]) -> Progress {
        interrupt::watch();
        let total: f64 = jobs.iter().map(|j| j.case.scenario.duration.as_millis_f64()).sum();
        let bar = ProgressBar::with_draw_target(Some(total as u64), ProgressDrawTarget::stderr_with_hz(10));
        if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {percent:>3} % {eta:>4}") {
            bar.set_style(style);
        }
        let progress = Progress { bar, runs: jobs.len(), finished: AtomicUsize::new(0) };
        progress.tell();
        progress.bar.enable_steady_tick(Duration::from_millis(500));
        progress
    }

    fn tell(&self) {
        let done = self.finished.load(Ordering::Relaxed);
        self.bar.set_message(format!("{done} of {} runs", self.runs));
    }
}

impl Watch for Progress {
    fn interrupted(&self) -> bool {
        interrupt::asked()
    }

    fn advanced(&self, by: Span) {
        self.bar.inc(by.as_millis_f64() as u64);
    }

    fn finished(&self, left: Span) {
        self.advanced(left);
        self.finished.fetch_add(1, Ordering::Relaxed);
        self.tell();
    }

    fn again(&self, long: Span) {
        self.bar.inc_length(long.as_millis_f64() as u64);
        self.finished.fetch_sub(1, Ordering::Relaxed);
        self.tell();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
