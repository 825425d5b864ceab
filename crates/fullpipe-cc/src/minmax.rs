//! Windowed maximum or minimum in constant space: Kathleen Nichols' three-sample filter, equivalent
//! to Linux `lib/win_minmax.c`.

/// A measurement with its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sample<V> {
    /// Time in any unit (rounds, microseconds). May wrap around.
    pub t: u32,
    /// The value.
    pub v: V,
}

/// The best value of the last window, with the runners-up that succeed it when it ages out.
///
/// The three samples are ordered by age and by rank at once: the first is the best in the window,
/// the second the best since it, the third the best since that one. A new best replaces all others,
/// because older samples can never be the answer again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MinMax<V> {
    samples: [Sample<V>; 3],
}

impl<V: Copy + PartialOrd> MinMax<V> {
    /// A filter with one sample `v` at `t`.
    pub fn new(t: u32, v: V) -> Self {
        MinMax { samples: [Sample { t, v }; 3] }
    }

    /// Restores a filter from its best, second and third sample.
    pub fn from_samples(samples: [Sample<V>; 3]) -> Self {
        MinMax { samples }
    }

    /// Best, second and third sample.
    pub fn samples(&self) -> [Sample<V>; 3] {
        self.samples
    }

    /// The best value in the window.
    pub fn get(&self) -> V {
        self.samples[0].v
    }

    /// Resets the filter to `v` at `t`.
    pub fn reset(&mut self, t: u32, v: V) -> V {
        *self = Self::new(t, v);
        v
    }

    /// Adds `v` at `t` and returns the maximum of the last `window`.
    #[inline]
    pub fn running_max(&mut self, window: u32, t: u32, v: V) -> V {
        self.update(window, Sample { t, v }, |new, old| new >= old)
    }

    /// Adds `v` at `t` and returns the minimum of the last `window`.
    #[inline]
    pub fn running_min(&mut self, window: u32, t: u32, v: V) -> V {
        self.update(window, Sample { t, v }, |new, old| new <= old)
    }

    #[inline]
    fn update(&mut self, window: u32, new: Sample<V>, at_least_as_good: impl Fn(V, V) -> bool) -> V {
        let s = &mut self.samples;
        if at_least_as_good(new.v, s[0].v) || new.t.wrapping_sub(s[2].t) > window {
            return self.reset(new.t, new.v);
        }
        if at_least_as_good(new.v, s[1].v) {
            s[1] = new;
            s[2] = new;
        } else if at_least_as_good(new.v, s[2].v) {
            s[2] = new;
        }
        self.age(window, new)
    }

    /// Retires a best sample that left the window, and keeps the runners-up from different parts
    /// of the window: that bounds the error when values only ever get worse.
    #[inline]
    fn age(&mut self, window: u32, new: Sample<V>) -> V {
        let s = &mut self.samples;
        let age = new.t.wrapping_sub(s[0].t);
        if age > window {
            *s = [s[1], s[2], new];
            // The second may have left the window as well; the third was checked to be inside.
            if new.t.wrapping_sub(s[0].t) > window {
                *s = [s[1], s[2], new];
            }
        } else if s[1].t == s[0].t && age > window / 4 {
            s[1] = new;
            s[2] = new;
        } else if s[2].t == s[1].t && age > window / 2 {
            s[2] = new;
        }
        s[0].v
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    #[test]
    fn a_new_maximum_forgets_the_rest() {
        let mut f = MinMax::new(0, 5u32);
        assert_eq!(f.running_max(10, 1, 3), 5);
        assert_eq!(f.running_max(10, 2, 7), 7);
        assert_eq!(f.samples(), [Sample { t: 2, v: 7 }; 3]);
    }

    #[test]
    fn the_second_best_takes_over_when_the_best_ages_out() {
        let mut f = MinMax::new(0, 10u32);
        for t in 1..=10 {
            assert_eq!(f.running_max(10, t, 4), 10, "the best is still in the window at {t}");
        }
        assert_eq!(f.running_max(10, 11, 4), 4);
    }

    #[test]
    fn an_idle_window_leaves_only_the_new_sample() {
        let mut f = MinMax::new(0, 10u32);
        assert_eq!(f.running_max(10, 100, 1), 1);
        let mut f = MinMax::new(0, 10u32);
        assert_eq!(f.running_min(10, 100, 99), 99);
    }

    /// No part of the window bounds the error from below: three good samples from one moment leave
    /// it together, and what was worse since then was never kept. So it is in the kernel.
    #[test]
    fn samples_hidden_by_three_better_ones_expire_with_them() {
        let mut f = MinMax::new(0, 917u32);
        for (t, v) in [(11, 794), (12, 695), (13, 567), (23, 208)] {
            f.running_max(12, t, v);
        }
        let kept = [(11, 794), (12, 695), (13, 567)].map(|(t, v)| Sample { t, v });
        assert_eq!(f.samples(), kept);
        assert_eq!(f.running_max(12, 26, 0), 0, "although 208 was measured within the last quarter");
    }

    #[test]
    fn time_may_wrap_around() {
        let mut f = MinMax::new(u32::MAX - 1, 10u32);
        assert_eq!(f.running_max(10, 3, 4), 10);
        assert_eq!(f.running_max(10, 20, 4), 4);
    }

    proptest! {
        /// What is estimated was measured within the window, and is no less than what was measured last.
        #[test]
        fn the_estimate_was_measured_within_the_window(
            steps in prop::collection::vec((0u32..4, 0u32..1000), 1..200)
        ) {
            let window = 12;
            let mut history: Vec<Sample<u32>> = vec![Sample { t: 0, v: 0 }];
            let mut f = MinMax::new(0, 0u32);
            let mut t = 0;
            for (dt, v) in steps {
                t += dt;
                history.push(Sample { t, v });
                let got = f.running_max(window, t, v);
                prop_assert!(got >= v);
                prop_assert!(history.iter().any(|s| t - s.t <= window && s.v == got));
            }
        }

        #[test]
        fn the_minimum_is_the_mirror_image_of_the_maximum(
            steps in prop::collection::vec((0u32..6, 0u32..50), 1..200)
        ) {
            let (mut max, mut min) = (MinMax::new(0, 25i64), MinMax::new(0, -25i64));
            let mut t = 0;
            for (dt, v) in steps {
                t += dt;
                let v = i64::from(v);
                prop_assert_eq!(max.running_max(10, t, v), -min.running_min(10, t, -v));
            }
        }
    }
}
