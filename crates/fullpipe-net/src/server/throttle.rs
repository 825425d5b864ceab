//! Log throttling against floods by peers: a burst of lines of each kind, then some per second,
//! with the number of suppressed lines.

use super::Event;
use std::collections::HashMap;
use std::time::Instant;

/// Burst of lines of one kind.
const BURST: f64 = 50.0;
/// Sustained lines per second of one kind.
const PER_SECOND: f64 = 5.0;

/// Event kinds that only the operator causes; every other kind is throttled.
const UNTHROTTLED_KINDS: [&str; 2] = ["listening", "stopped"];

#[derive(Debug)]
struct Bucket {
    left: f64,
    at: Instant,
    suppressed: u64,
}

/// The throttle state by kind.
#[derive(Debug, Default)]
pub(super) struct Throttle(HashMap<&'static str, Bucket>);

impl Throttle {
    /// The event to log, or `None` if it is suppressed.
    pub fn pass(&mut self, event: Event, now: Instant) -> Option<Event> {
        if UNTHROTTLED_KINDS.contains(&event.kind) {
            return Some(event);
        }
        let bucket = self.0.entry(event.kind).or_insert(Bucket { left: BURST, at: now, suppressed: 0 });
        let passed = now.saturating_duration_since(bucket.at).as_secs_f64();
        bucket.left = (bucket.left + passed * PER_SECOND).min(BURST);
        bucket.at = now;
        if bucket.left < 1.0 {
            bucket.suppressed += 1;
            return None;
        }
        bucket.left -= 1.0;
        match std::mem::take(&mut bucket.suppressed) {
            0 => Some(event),
            n => Some(event.with("not_logged", n)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_flood_is_logged_in_few_lines_and_counted() {
        let mut throttle = Throttle::default();
        let now = Instant::now();
        for kind in ["refused", "download", "test_finished", "a kind added later"] {
            let mut passed = |at| throttle.pass(Event::new(kind, None), at);
            assert_eq!((0..1000).filter_map(|_| passed(now)).count(), 50);
            let later = passed(now + Duration::from_secs(1)).unwrap();
            assert_eq!(later.to_json()["not_logged"], 950);
        }
        assert!((0..100).all(|_| throttle.pass(Event::new("stopped", None), now).is_some()));
    }
}
