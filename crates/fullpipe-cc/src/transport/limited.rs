//! Whether the window was the limit within the last round trip.

/// Whether the window, not the application, limited sending within the last round trip: the value
/// of [`AckReport::cwnd_limited`](crate::AckReport::cwnd_limited). Once limited, it stays so until
/// what is in flight then is delivered (Linux `tcp_is_cwnd_limited`).
///
/// Counts are those of [`SendController::delivered`](crate::SendController::delivered); a new path
/// gets a new value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WindowLimited {
    until: Option<u64>,
}

impl WindowLimited {
    /// Not limited so far.
    pub const fn new() -> Self {
        WindowLimited { until: None }
    }

    /// The window keeps the transport from sending, with `delivered` bytes delivered so far and
    /// `inflight` in flight.
    pub fn on_limited(&mut self, delivered: u64, inflight: u64) {
        self.until = Some(delivered.saturating_add(inflight));
    }

    /// Whether an ACK that raises the delivered count to `delivered` belongs to a limited round.
    pub fn is_limited(&self, delivered: u64) -> bool {
        self.until.is_some_and(|until| delivered <= until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_limited_until_its_flight_is_delivered() {
        let mut limited = WindowLimited::new();
        assert!(!limited.is_limited(0));
        limited.on_limited(1000, 10_000);
        assert!(limited.is_limited(2000) && limited.is_limited(11_000) && !limited.is_limited(11_001));
        limited.on_limited(11_001, 5000);
        assert!(limited.is_limited(16_001));
        limited.on_limited(u64::MAX, 1);
        assert!(limited.is_limited(u64::MAX));
    }
}
