//! Points in time and durations, in nanoseconds.

use core::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};

/// A point in time: nanoseconds since the start of the run (or another origin).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time(u64);

/// A duration in nanoseconds, 0 to 584 years. Arithmetic saturates.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Span(u64);

impl Time {
    /// The origin.
    pub const ZERO: Time = Time(0);
    /// The latest time, used for "never".
    pub const NEVER: Time = Time(u64::MAX);

    /// The point `ns` nanoseconds after the origin.
    pub const fn from_nanos(ns: u64) -> Self {
        Time(ns)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole microseconds since the origin, rounded down like the kernel's clock.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// The time of `now` on a clock whose origin is `base`; the origin if `now` is earlier.
    ///
    /// A transport keeps one `base` for the life of a connection:
    ///
    /// ```
    /// use fullpipe_units::{Span, Time};
    /// use std::time::{Duration, Instant};
    ///
    /// let base = Instant::now();
    /// let now = Time::from_instant(base, base + Duration::from_millis(5));
    /// assert_eq!(now, Time::ZERO + Span::from_millis(5));
    /// assert_eq!(now.to_instant(base), Some(base + Duration::from_millis(5)));
    /// ```
    #[cfg(feature = "std")]
    pub fn from_instant(base: std::time::Instant, now: std::time::Instant) -> Self {
        Time::ZERO + Span::from(now.saturating_duration_since(base))
    }

    /// The instant of this time on a clock whose origin is `base`; `None` for [`Time::NEVER`], or if
    /// the platform cannot represent it.
    #[cfg(feature = "std")]
    pub fn to_instant(self, base: std::time::Instant) -> Option<std::time::Instant> {
        if self == Time::NEVER {
            return None;
        }
        base.checked_add(core::time::Duration::from_nanos(self.0))
    }

    /// Seconds since the origin, for plots and tables.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The time since `earlier`, or zero if `earlier` is later.
    pub const fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// Zero.
    pub const ZERO: Span = Span(0);
    /// The longest span: 584 years.
    pub const MAX: Span = Span(u64::MAX);

    /// A span of `ns` nanoseconds.
    pub const fn from_nanos(ns: u64) -> Self {
        Span(ns)
    }

    /// A span of `us` microseconds.
    pub const fn from_micros(us: u64) -> Self {
        Span(us.saturating_mul(1_000))
    }

    /// A span of `ms` milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Span(ms.saturating_mul(1_000_000))
    }

    /// A span of `s` seconds.
    pub const fn from_secs(s: u64) -> Self {
        Span(s.saturating_mul(1_000_000_000))
    }

    /// A span of `s` seconds; negative and NaN become zero, too long becomes [`Span::MAX`].
    pub fn from_secs_f64(s: f64) -> Self {
        Span((s * 1e9) as u64)
    }

    /// Nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole microseconds, rounded down.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// Seconds, for plots and tables.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Milliseconds, for plots and tables.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Whether this is zero.
    pub const fn is_zero(&self) -> bool {
        self.0 == 0
    }

    /// `self · numerator / denominator`, rounded down and without overflow in between.
    /// A zero denominator gives [`Span::MAX`].
    pub const fn mul_div(self, numerator: u64, denominator: u64) -> Span {
        if denominator == 0 {
            return Span::MAX;
        }
        let v = self.0 as u128 * numerator as u128 / denominator as u128;
        Span(if v > u64::MAX as u128 { u64::MAX } else { v as u64 })
    }
}

/// Saturates at [`Span::MAX`].
impl From<core::time::Duration> for Span {
    fn from(duration: core::time::Duration) -> Self {
        Span(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Span> for core::time::Duration {
    fn from(span: Span) -> Self {
        core::time::Duration::from_nanos(span.0)
    }
}

impl Add<Span> for Time {
    type Output = Time;
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Span> for Time {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Sub<Span> for Time {
    type Output = Time;
    fn sub(self, span: Span) -> Time {
        Time(self.0.saturating_sub(span.0))
    }
}

impl Sub<Time> for Time {
    type Output = Span;
    fn sub(self, earlier: Time) -> Span {
        self.since(earlier)
    }
}

impl Add for Span {
    type Output = Span;
    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Span) {
        *self = *self + other;
    }
}

impl Sub for Span {
    type Output = Span;
    fn sub(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }
}

impl SubAssign for Span {
    fn sub_assign(&mut self, other: Span) {
        *self = *self - other;
    }
}

impl Mul<u64> for Span {
    type Output = Span;
    fn mul(self, n: u64) -> Span {
        Span(self.0.saturating_mul(n))
    }
}

impl Div<u64> for Span {
    type Output = Span;
    fn div(self, n: u64) -> Span {
        Span(self.0 / n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_instead_of_wrapping() {
        assert_eq!(Time::NEVER + Span::from_secs(1), Time::NEVER);
        assert_eq!(Time::ZERO - Span::from_secs(1), Time::ZERO);
        assert_eq!(Time::from_nanos(3) - Time::from_nanos(5), Span::ZERO);
        assert_eq!(Span::MAX * 2, Span::MAX);
        assert_eq!(Span::MAX.mul_div(u64::MAX, 1), Span::MAX);
    }

    #[test]
    fn durations_convert_and_saturate() {
        use core::time::Duration;
        assert_eq!(Span::from(Duration::from_micros(1500)), Span::from_micros(1500));
        assert_eq!(Span::from(Duration::MAX), Span::MAX);
        assert_eq!(Duration::from(Span::from_millis(3)), Duration::from_millis(3));
    }

    #[cfg(feature = "std")]
    #[test]
    fn instants_before_the_origin_are_the_origin() {
        let base = std::time::Instant::now();
        let later = base + core::time::Duration::from_secs(1);
        assert_eq!(Time::from_instant(later, base), Time::ZERO);
        assert_eq!(Time::NEVER.to_instant(base), None);
    }

    #[test]
    fn mul_div_keeps_full_precision() {
        assert_eq!(Span::from_nanos(u64::MAX / 2).mul_div(3, 3), Span::from_nanos(u64::MAX / 2));
        assert_eq!(Span::from_nanos(10).mul_div(1, 3), Span::from_nanos(3));
    }
}
