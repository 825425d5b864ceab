//! Histograms of positive values over many orders of magnitude, with bins of 0.5 %.

/// Ratio of the bounds of a bin.
const RATIO: f64 = 1.005;

/// A weighted histogram with logarithmic bins. Memory: one entry per non-empty bin.
#[derive(Clone, Debug, Default)]
pub(crate) struct Histogram {
    bins: Vec<Bin>,
    /// Numbers of the bins in rising order of their values: a new bin moves two bytes per bin. At
    /// most all numbers of [`Bin::number`].
    order: Vec<u16>,
    /// The bin of the previous value, often also that of the next.
    latest: usize,
    /// Bins are merged when there are this many.
    max_bins: Option<usize>,
    weight: f64,
    count: u64,
}

#[derive(Clone, Copy, Debug)]
struct Bin {
    number: i16,
    /// Lower bounds of this bin and of the next.
    from: f64,
    to: f64,
    sums: Sums,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    weight: f64,
    sum: f64,
}

impl Bin {
    /// An empty bin for `value`. Later values are compared with its bounds, which is faster than a
    /// logarithm.
    fn new(value: f64) -> Self {
        let number = ((value.ln() / RATIO.ln()).floor() as i16).min(i16::MAX - 1);
        // The outermost bins are unbounded.
        let bound = |n: i16| match n {
            i16::MIN => 0.0,
            i16::MAX => f64::INFINITY,
            _ => RATIO.powi(i32::from(n)),
        };
        // On a bound, a rounded logarithm may give the neighbouring bin.
        let number = match (bound(number), bound(number.saturating_add(1))) {
            (from, _) if value < from => number.saturating_sub(1),
            (_, to) if value >= to => number.saturating_add(1),
            _ => number,
        };
        Bin { number, from: bound(number), to: bound(number.saturating_add(1)), sums: Sums::default() }
    }
}

impl Histogram {
    /// A histogram of at most `max_bins` bins, which are wider if the values need more.
    pub(crate) fn bounded(max_bins: usize) -> Self {
        Histogram { max_bins: Some(max_bins.max(4)), ..Histogram::default() }
    }

    /// Adds `value` with `weight`. Values that are not positive and finite are ignored.
    #[inline]
    pub(crate) fn add(&mut self, value: f64, weight: f64) {
        if value <= 0.0 || !value.is_finite() {
            return;
        }
        if self.bins.get(self.latest).is_none_or(|bin| value < bin.from || value >= bin.to) {
            self.latest = self.place(value);
        }
        let Sums { weight: all, sum } = &mut self.bins[self.latest].sums;
        *all += weight;
        *sum += value * weight;
        self.weight += weight;
        self.count += 1;
    }

    /// Index of the bin of `value`, inserted if missing.
    fn place(&mut self, value: f64) -> usize {
        let place = self.order.partition_point(|n| self.bins[usize::from(*n)].to <= value);
        if let Some(found) = self.order.get(place).map(|n| usize::from(*n))
            && value >= self.bins[found].from
        {
            return found;
        }
        if self.max_bins.is_some_and(|most| self.bins.len() >= most) {
            self.merge();
            return self.place(value);
        }
        self.order.insert(place, self.bins.len() as u16);
        self.bins.push(Bin::new(value));
        self.bins.len() - 1
    }

    /// Merges pairs of neighbours, apart from the lowest and the highest bin: these have the extremes.
    fn merge(&mut self) {
        let sorted: Vec<Bin> = self.sorted().copied().collect();
        let (Some((lowest, rest)), true) = (sorted.split_first(), sorted.len() > 3) else { return };
        let Some((highest, middle)) = rest.split_last() else { return };
        let pair = |pair: &[Bin]| {
            let sum = |of: fn(&Sums) -> f64| pair.iter().map(|bin| of(&bin.sums)).sum();
            let last = pair.last().unwrap_or(lowest);
            Bin { to: last.to, sums: Sums { weight: sum(|s| s.weight), sum: sum(|s| s.sum) }, ..pair[0] }
        };
        self.bins.clear();
        self.bins.push(*lowest);
        self.bins.extend(middle.chunks(2).map(pair));
        self.bins.push(*highest);
        self.order = (0..self.bins.len() as u16).collect();
        self.latest = 0;
    }

    /// The bins in rising order.
    fn sorted(&self) -> impl Iterator<Item = &Bin> {
        self.order.iter().map(|n| &self.bins[usize::from(*n)])
    }

    /// Bytes of memory, approximately.
    pub(crate) fn memory(&self) -> usize {
        self.bins.capacity() * size_of::<Bin>() + self.order.capacity() * size_of::<u16>()
    }

    /// Number of values added.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The mean of the lowest bin.
    pub(crate) fn least(&self) -> Option<f64> {
        self.sorted().next().map(|Bin { sums, .. }| sums.sum / sums.weight)
    }

    /// The value below which a share `q` of the weight is.
    pub(crate) fn quantile(&self, q: f64) -> Option<f64> {
        let mut left = self.weight * q;
        for Bin { sums, .. } in self.sorted() {
            left -= sums.weight;
            if left <= 0.0 {
                return Some(sums.sum / sums.weight);
            }
        }
        self.sorted().last().map(|Bin { sums, .. }| sums.sum / sums.weight)
    }

    /// The highest mode: the mean over the highest window of ±`spread` that is a local maximum and
    /// has at least a share `of_best` of the weight of the largest window and `of_all` of the
    /// total.
    pub(crate) fn highest_mode(&self, spread: f64, of_best: f64, of_all: f64) -> Option<f64> {
        let half = ((1.0 + spread).ln() / RATIO.ln()).ceil() as i16;
        let bins: Vec<&Bin> = self.sorted().collect();
        let window = |centre: i16| {
            let from = bins.partition_point(|bin| bin.number < centre.saturating_sub(half));
            let range = bins[from..].iter().take_while(|bin| bin.number <= centre.saturating_add(half));
            range.fold(Sums::default(), |a, Bin { sums, .. }| Sums {
                weight: a.weight + sums.weight,
                sum: a.sum + sums.sum,
            })
        };
        let windows: Vec<(i16, Sums)> = bins.iter().map(|bin| (bin.number, window(bin.number))).collect();
        let best = windows.iter().map(|w| w.1.weight).fold(0.0, f64::max);
        let needed = (best * of_best).max(self.weight * of_all);
        let (from, _) = windows.iter().rev().find(|(_, w)| w.weight >= needed)?;
        // From the highest sufficient window down to its local maximum.
        let near = windows.iter().rev().filter(|(k, _)| k <= from && *k >= from.saturating_sub(2 * half));
        let (_, top) = near.max_by(|a, b| a.1.weight.total_cmp(&b.1.weight))?;
        (top.weight > 0.0).then(|| top.sum / top.weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_a_bin() {
        let mut h = Histogram::default();
        for i in 1..=1000 {
            h.add(f64::from(i), 1.0);
        }
        for (q, v) in [(0.5, 500.0), (0.95, 950.0), (1.0, 1000.0)] {
            let found = h.quantile(q).unwrap();
            assert!((found / v - 1.0).abs() < 0.006, "{q}: {found}");
        }
        assert_eq!(h.count(), 1000);
        assert_eq!(Histogram::default().quantile(0.5), None);
    }

    #[test]
    fn each_value_is_in_one_bin() {
        let mut far = Histogram::default();
        [1e-300, 1e300, 2e300, f64::MAX, f64::MIN_POSITIVE, 3e-300].iter().for_each(|v| far.add(*v, 1.0));
        assert_eq!((far.bins.len(), far.count()), (2, 6));
        let mut h = Histogram::default();
        let values = (-3000..3000).map(|n| RATIO.powi(n));
        let values: Vec<f64> = values.flat_map(|v| [v.next_down(), v, v.next_up(), v * 1.002]).collect();
        values.iter().rev().for_each(|v| h.add(*v, 1.0));
        assert!(h.sorted().collect::<Vec<_>>().is_sorted_by(|a, b| a.to <= b.from && a.number < b.number));
        assert_eq!(h.order.len(), h.bins.len());
        assert!(h.bins.iter().all(|bin| (bin.from..bin.to).contains(&(bin.sums.sum / bin.sums.weight))));
        let counted: f64 = h.bins.iter().map(|bin| bin.sums.weight).sum();
        assert_eq!(counted, values.len() as f64);
    }

    #[test]
    fn bounded_bins_keep_the_extremes_and_every_value() {
        let mut h = Histogram::bounded(64);
        let values: Vec<f64> = (0..5000).map(|i| 1.01_f64.powi((i * 7919) % 2000)).collect();
        values.iter().for_each(|v| h.add(*v, 1.0));
        assert!(h.bins.len() <= 64 && h.order.len() == h.bins.len(), "{}", h.bins.len());
        assert!(h.sorted().collect::<Vec<_>>().is_sorted_by(|a, b| a.to <= b.from));
        assert_eq!(h.bins.iter().map(|bin| bin.sums.weight).sum::<f64>(), 5000.0);
        let sorted = |q: f64| {
            let mut values = values.clone();
            values.sort_by(f64::total_cmp);
            values[((values.len() - 1) as f64 * q) as usize]
        };
        for (found, exact) in [(h.least(), sorted(0.0)), (h.quantile(1.0), sorted(1.0))] {
            assert!((found.unwrap() / exact - 1.0).abs() < 0.006, "{found:?} {exact}");
        }
        assert!((h.quantile(0.5).unwrap().ln() / sorted(0.5).ln() - 1.0).abs() < 0.05);
    }

    #[test]
    fn highest_mode_is_neither_an_outlier_nor_a_lower_mode() {
        let mut h = Histogram::default();
        (0..1000).for_each(|i| h.add(40.0 + f64::from(i % 10) * 0.02, 1.0));
        (0..400).for_each(|i| h.add(99.0 + f64::from(i % 10) * 0.2, 1.0));
        h.add(180.0, 1.0);
        let mode = h.highest_mode(0.015, 0.1, 0.01).unwrap();
        assert!((mode - 100.0).abs() < 1.0, "{mode}");
    }
}
