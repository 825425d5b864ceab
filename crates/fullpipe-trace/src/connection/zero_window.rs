//! Periods in which the receiver's window was closed (zero), and the sender's probes of it.

use fullpipe_units::{Span, Time};

/// The longest time between two probes of a closed window in Linux (`TCP_RTO_MAX`).
pub(super) const MAX_PROBE_INTERVAL: Span = Span::from_secs(120);

/// A period in which the window was zero.
#[derive(Clone, Copy, Debug)]
pub(super) struct Period {
    pub(super) since: Time,
    /// Up to when its time is recorded already, as data was in flight.
    pub(super) recorded: Time,
    /// Whether the sender probed the window: it had data to send.
    pub(super) probed: bool,
}

/// The state of a receive window that was closed.
#[derive(Clone, Debug, Default)]
pub(super) struct ZeroWindow {
    /// The current period.
    pub(super) period: Option<Period>,
    /// The unrecorded time of the last period if it had no probes. The next data shows whether the
    /// sender had waited.
    pub(super) undecided: Option<(Time, Time)>,
    /// The byte that was sent as a probe and not acknowledged.
    pub(super) probe: Option<u64>,
    /// End of the last period in which the sender waited.
    pub(super) end: Option<Time>,
}

impl ZeroWindow {
    /// Starts a period at `now`.
    pub(super) fn start(&mut self, now: Time) {
        self.undecided = None;
        self.period = Some(Period { since: now, recorded: now, probed: false });
    }

    /// Sets the time up to which the current period is recorded.
    pub(super) fn record_until(&mut self, at: Time) {
        if let Some(period) = &mut self.period {
            period.recorded = at;
        }
    }
}
