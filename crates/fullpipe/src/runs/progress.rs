//! A progress bar on stderr, if that is a terminal.

use super::interrupt;
use fullpipe_run::{Job, Monitor, Repeat};
use fullpipe_units::Span;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Shows the progress of a batch; Ctrl-C stops it.
pub struct Progress {
    bar: ProgressBar,
    runs: usize,
    finished: AtomicUsize,
}

impl Progress {
    /// Starts to show the progress of `jobs`.
    pub fn new(jobs: &[Job]) -> Progress {
        interrupt::watch();
        let total: f64 = jobs.iter().map(|j| j.case.scenario.duration.as_millis_f64()).sum();
        let bar = ProgressBar::with_draw_target(Some(total as u64), ProgressDrawTarget::stderr_with_hz(10));
        if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {percent:>3} % {eta:>4}") {
            bar.set_style(style);
        }
        let progress = Progress { bar, runs: jobs.len(), finished: AtomicUsize::new(0) };
        progress.update();
        progress
    }

    fn update(&self) {
        let done = self.finished.load(Ordering::Relaxed);
        self.bar.set_message(format!("{done} of {} runs", self.runs));
    }
}

impl Monitor for Progress {
    fn interrupted(&self) -> bool {
        interrupt::requested()
    }

    fn advanced(&self, by: Span) {
        self.bar.inc(by.as_millis_f64() as u64);
    }

    fn finished(&self, left: Span) {
        self.advanced(left);
        self.finished.fetch_add(1, Ordering::Relaxed);
        self.update();
    }

    fn note(&self, text: &str) {
        self.bar.suspend(|| eprintln!("fullpipe: {text}"));
    }

    fn repeated(&self, repeat: &Repeat) {
        let Repeat { label, reasons, duration } = repeat;
        self.bar.suspend(|| {
            eprintln!(
                "fullpipe: repeating the invalid run {label}, which takes another {duration} (--again 0 \
                 keeps it instead): {}",
                reasons.join("; ")
            );
        });
        self.bar.inc_length(duration.as_millis_f64() as u64);
        self.finished.fetch_sub(1, Ordering::Relaxed);
        self.update();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
