//! The progress and the duration of a running test, against the limits.

use super::Shared;
use crate::iperf3::ServerError;
use crate::transfer::Endpoint;
use std::time::{Duration, Instant};

/// Grace time after a test's duration: the peer starts later and its data queues.
const END_GRACE: Duration = Duration::from_secs(30);

/// Watches the streams of a test.
pub(super) struct Watch {
    began: Instant,
    /// Bytes transferred, and the time of the last progress.
    moved: (u64, Instant),
    /// Bytes transferred, and the time, when the rate was last checked.
    checked: (u64, Instant),
}

impl Watch {
    pub fn new(began: Instant) -> Watch {
        Watch { began, moved: (0, began), checked: (0, began) }
    }

    /// Enforces the limits on a test of `seconds`.
    pub fn check<'a, I: Iterator<Item = &'a Endpoint>>(
        &mut self,
        shared: &Shared,
        endpoints: impl Fn() -> I,
        now: Instant,
        seconds: u32,
    ) -> Result<(), (ServerError, String)> {
        let idle = shared.config.limits.idle;
        let total: u64 = endpoints().map(|endpoint| endpoint.meter.bytes()).sum();
        if total != self.moved.0 {
            self.moved = (total, now);
        }
        if now - self.moved.1 > idle {
            return Err((ServerError::NO_DATA, format!("no progress for {idle:?}")));
        }
        if now - self.checked.1 >= idle {
            // Acknowledged bytes, as far as possible: those in a buffer are no progress.
            let total: u64 = endpoints().map(Endpoint::progress).sum();
            if let Some(why) = shared.too_slow(total.saturating_sub(self.checked.0)) {
                return Err((ServerError::NO_DATA, why));
            }
            self.checked = (total, now);
        }
        if now > self.began + Duration::from_secs(seconds.into()) + END_GRACE {
            return Err((ServerError::DURATION_EXPIRED, "the client did not end the test".to_owned()));
        }
        Ok(())
    }
}
