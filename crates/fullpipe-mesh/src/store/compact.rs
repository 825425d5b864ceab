//! The records of a store or a history as samples, direction by direction.

use super::chunks::{HalfHour, HalfHours, MAX_TAIL, count_samples};
use super::rows::{read_row, select, table_name};
use super::{Store, StoreError, names};
use crate::chunk::{CHUNK_MS, MAX_CHUNK_BYTES, MinuteSample, Samples, TransferSample};
use crate::file::{MAX_CONTROLLERS, MAX_SITES};
use crate::message::{Row, Table};
use crate::record::{History, Pair, keep_largest, place, places};
use rusqlite::{Transaction, params};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// Maximum bytes, and number, of encoded chunks in memory.
const MAX_GROUP_BYTES: usize = 16 << 20;
const MAX_GROUP_CHUNKS: usize = 250_000;
/// Maximum transfers, or minutes, of a direction in memory, 7 years of minutes: of more, the newer half
/// is kept.
const MAX_PAIR_SAMPLES: usize = 4_000_000;
/// Maximum directions: more than 64 sites and their predecessors have.
const MAX_PAIRS: usize = 100_000;
/// Maximum half hours: 5 years.
const MAX_HALF_HOURS: usize = 90_000;
/// Maximum routes. Each direction has an equal share for its newest ones; what some leave unused, the
/// others get.
const MAX_ROUTES: u32 = 20_000;
/// Maximum routes from which these are selected, the newest.
const MAX_ROUTES_SCAN: u32 = 1_000_000;
/// Maximum rows that are read for the newest of some directions: four hours of 64 sites.
const MAX_NEWEST_SCAN: usize = 2_200_000;

/// The records of a time range as samples, in memory one direction at a time.
pub struct CompactHistory<'a> {
    /// Names, the period, and the routes; no transfers and minutes.
    pub head: History,
    /// The time of the first records in it, where there are older ones that are left out.
    pub bounded_ms: Option<i64>,
    half_hours: HalfHours,
    range: Range<i64>,
    /// The directions with the store's ids of their sites.
    pairs: BTreeMap<Pair, [i64; 2]>,
    /// Rows that are not in chunks; without chunks, all.
    tail: BTreeMap<Pair, Samples>,
    chunks: Option<Chunks<'a>>,
    /// The new indices of sites and controllers whose names are limited.
    kept: Option<[Vec<Option<u16>>; 2]>,
}

/// The chunks of a store.
struct Chunks<'a> {
    store: &'a Store,
    controllers: HashMap<i64, u16>,
    /// All reads are from one snapshot.
    _snapshot: Transaction<'a>,
}

impl std::fmt::Debug for CompactHistory<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompactHistory").field("head", &self.head).finish_non_exhaustive()
    }
}

impl From<&History> for CompactHistory<'static> {
    fn from(history: &History) -> Self {
        let mut tail: BTreeMap<Pair, Samples> = BTreeMap::new();
        for transfer in &history.transfers {
            let sample = TransferSample::new(transfer, transfer.controller.into());
            tail.entry(transfer.pair).or_default().transfers.push(sample);
        }
        for minute in &history.minutes {
            tail.entry(minute.pair).or_default().minutes.push(MinuteSample::from(minute));
        }
        let mut half_hours = HalfHours::new();
        count_samples(tail.values(), &mut half_hours);
        let head = History {
            sites: history.sites.clone(),
            controllers: history.controllers.clone(),
            period: history.period,
            routes: history.routes.clone(),
            ..History::default()
        };
        CompactHistory {
            head,
            bounded_ms: None,
            half_hours,
            range: i64::MIN..i64::MAX,
            pairs: tail.keys().map(|pair| (*pair, [0; 2])).collect(),
            tail,
            chunks: None,
            kept: None,
        }
    }
}

impl Store {
    /// The records of a time range as samples: of chunks, and of rows that are not in chunks yet. Of
    /// more than `most` transfers, the newest half hours with at most as many; without chunks, or if
    /// the chunks are far behind, the newest 500 000 rows.
    ///
    /// # Errors
    /// If the database fails, or is damaged.
    pub fn load_compact(&self, time: Range<i64>, most: u64) -> Result<CompactHistory<'_>, StoreError> {
        self.read_compact(time, most).map_err(|e| self.failed(e))
    }

    fn read_compact(&self, time: Range<i64>, most: u64) -> rusqlite::Result<CompactHistory<'_>> {
        let snapshot = self.db.unchecked_transaction()?;
        let ((sites, site_ids), (controllers, controller_ids)) =
            (names(&self.db, "site")?, names(&self.db, "controller")?);
        let mut compact = CompactHistory {
            head: History { sites, controllers, period: self.period()?, ..History::default() },
            bounded_ms: None,
            half_hours: HalfHours::new(),
            range: time,
            pairs: BTreeMap::new(),
            tail: BTreeMap::new(),
            chunks: None,
            kept: None,
        };
        let mut tail: BTreeMap<[i64; 2], Samples> = BTreeMap::new();
        let ids = |sender, receiver, _| [sender, receiver];
        if self.has_chunks && self.unchunked_rows()? <= MAX_TAIL.into() {
            self.read_half_hours(&mut compact, most)?;
            for table in [Table::Transfers, Table::Minutes] {
                self.read_after(table, self.chunked(table)?, MAX_TAIL, &ids, &mut tail)?;
            }
        } else {
            let from = self.bounded(&compact.range, MAX_TAIL)?;
            if from > compact.range.start {
                compact.range.start = from;
                compact.bounded_ms = Some(from);
            }
            for table in [Table::Transfers, Table::Minutes] {
                self.read_between(table, &compact.range, &ids, &mut tail)?;
            }
        }
        let place =
            |id: i64| site_ids.get(&id).copied().ok_or(rusqlite::Error::IntegralValueOutOfRange(2, id));
        let indices: HashMap<u32, u16> = controller_ids
            .iter()
            .filter_map(|(id, index)| Some((u32::try_from(*id).ok()?, *index)))
            .collect();
        for ([sender, receiver], mut samples) in tail {
            compact.keep_range(&mut samples);
            samples.sort();
            rename_controllers(&mut samples, |id| indices.get(&id).copied());
            if !samples.transfers.is_empty() || !samples.minutes.is_empty() {
                let pair = Pair { from: place(sender)?, to: place(receiver)? };
                compact.pairs.insert(pair, [sender, receiver]);
                compact.tail.insert(pair, samples);
            }
        }
        if let Some((first, _)) = compact.half_hours.first_key_value() {
            let last = compact.half_hours.last_key_value().map_or(*first, |(last, _)| *last);
            let mut statement = self.db.prepare_cached(
                "SELECT DISTINCT sender, receiver FROM chunk WHERE span >= ? AND span <= ? LIMIT ?",
            )?;
            let mut found = statement.query(params![first, last, MAX_PAIRS as i64])?;
            while let Some(row) = found.next()? {
                let (sender, receiver) = (row.get(0)?, row.get(1)?);
                compact.pairs.insert(Pair { from: place(sender)?, to: place(receiver)? }, [sender, receiver]);
            }
            compact.chunks =
                Some(Chunks { store: self, controllers: controller_ids.clone(), _snapshot: snapshot });
        }
        count_samples(compact.tail.values(), &mut compact.half_hours);
        // A member that reports very many routes displaces only those of its own directions (up to
        // MAX_ROUTES_SCAN).
        let mut statement = self.db.prepare_cached(&select(
            Table::Routes,
            "id IN (SELECT id FROM \
               (SELECT id, at_ms, row_number() OVER (PARTITION BY sender, receiver ORDER BY at_ms DESC, id \
                 DESC) AS place FROM \
                 (SELECT id, at_ms, sender, receiver FROM route WHERE at_ms >= ? AND at_ms < ? \
                   ORDER BY at_ms DESC, id DESC LIMIT ?)) \
               ORDER BY place, at_ms DESC, id DESC LIMIT ?) \
             ORDER BY at_ms DESC, id DESC",
        ))?;
        let Range { start, end } = compact.range;
        let mut found = statement.query(params![start, end, MAX_ROUTES_SCAN, MAX_ROUTES])?;
        while let Some(row) = found.next()? {
            if let Row::Route(route) = read_row(Table::Routes, row, &site_ids, &controller_ids)? {
                compact.head.routes.push(route);
            }
        }
        compact.head.routes.reverse();
        Ok(compact)
    }

    /// Reads which half hours have chunks, the newest with at most `most` transfers.
    fn read_half_hours(&self, compact: &mut CompactHistory<'_>, most: u64) -> rusqlite::Result<()> {
        let Range { start, end } = compact.range;
        let mut statement = self.db.prepare_cached(
            "SELECT span, transfers, minutes, first_ms, last_ms FROM half_hour WHERE span >= ? AND span <= ? \
             ORDER BY span DESC",
        )?;
        let (first, last) = (start.div_euclid(CHUNK_MS), end.saturating_sub(1).div_euclid(CHUNK_MS));
        let mut found = statement.query(params![first, last])?;
        let mut transfers = 0u64;
        while let Some(row) = found.next()? {
            let count = |column| row.get::<_, i64>(column).map(|n| n.max(0) as u64);
            let span: i64 = row.get(0)?;
            let mut half_hour = HalfHour {
                transfers: count(1)?,
                minutes: count(2)?,
                first_ms: row.get(3)?,
                last_ms: row.get(4)?,
            };
            let is_within = |at: i64| at.div_euclid(CHUNK_MS) == span && (start..end).contains(&at);
            if !is_within(half_hour.first_ms) || !is_within(half_hour.last_ms) {
                half_hour = self.count_rows(span, start..end)?;
                if half_hour.transfers + half_hour.minutes == 0 {
                    continue;
                }
            }
            transfers = transfers.saturating_add(half_hour.transfers.max(half_hour.minutes));
            if (transfers > most || compact.half_hours.len() >= MAX_HALF_HOURS)
                && !compact.half_hours.is_empty()
            {
                let from = span.saturating_add(1).saturating_mul(CHUNK_MS).max(start);
                compact.range.start = from;
                compact.bounded_ms = Some(from);
                break;
            }
            compact.half_hours.insert(span, half_hour);
        }
        Ok(())
    }

    /// Counts the rows of a half hour that are in chunks, within a time range.
    fn count_rows(&self, span: i64, time: Range<i64>) -> rusqlite::Result<HalfHour> {
        let start = span.saturating_mul(CHUNK_MS);
        let (start, end) = (time.start.max(start), time.end.min(start.saturating_add(CHUNK_MS)));
        let count = |table| {
            let query = format!(
                "SELECT count(*), min(at_ms), max(at_ms) FROM {} WHERE at_ms >= ? AND at_ms < ? AND id <= ?",
                table_name(table)
            );
            self.db.prepare_cached(&query)?.query_row(params![start, end, self.chunked(table)?], |r| {
                let times: [Option<i64>; 2] = [r.get(1)?, r.get(2)?];
                Ok((r.get::<_, i64>(0)?.max(0) as u64, times))
            })
        };
        let (transfers, [first, last]) = count(Table::Transfers)?;
        let (minutes, [other_first, other_last]) = count(Table::Minutes)?;
        Ok(HalfHour {
            transfers,
            minutes,
            first_ms: first.into_iter().chain(other_first).min().unwrap_or(start),
            last_ms: last.max(other_last).unwrap_or(start),
        })
    }

    /// The time of the newest transfer or minute before `end_ms`, milliseconds since 1970.
    ///
    /// # Errors
    /// If the database fails.
    pub fn newest_ms(&self, end_ms: i64) -> Result<Option<i64>, StoreError> {
        let query = "SELECT (SELECT max(at_ms) FROM transfer WHERE at_ms < ?1), \
            (SELECT max(at_ms) FROM minute WHERE at_ms < ?1)";
        let newest = self
            .db
            .query_row(query, [end_ms], |r| Ok(r.get::<_, Option<i64>>(0)?.max(r.get::<_, Option<i64>>(1)?)));
        newest.map_err(|e| self.failed(e))
    }

    /// The newest `most` completed transfers of each controller, and minutes, of each of these
    /// directions, as far as the newest rows of the store and `time` have them. Sites and
    /// controllers are those of `head`.
    ///
    /// # Errors
    /// If the database fails.
    pub fn newest_records(
        &self,
        head: &History,
        pairs: &[Pair],
        time: &Range<i64>,
        most: usize,
    ) -> Result<History, StoreError> {
        let read = || -> rusqlite::Result<History> {
            let site_ids = renumbered(names(&self.db, "site")?, &head.sites);
            let controller_ids = renumbered(names(&self.db, "controller")?, &head.controllers);
            let mut missing: HashMap<(Pair, u16), usize> = HashMap::new();
            let mut history = History {
                sites: head.sites.clone(),
                controllers: head.controllers.clone(),
                period: head.period,
                ..History::default()
            };
            for table in [Table::Transfers, Table::Minutes] {
                missing.clear();
                let columns = if table == Table::Transfers { history.controllers.len() as u16 } else { 1 };
                missing.extend(pairs.iter().flat_map(|pair| (0..columns).map(|cc| ((*pair, cc), most))));
                let mut left = missing.len();
                let mut statement = self.db.prepare(&select(table, "1 ORDER BY id DESC"))?;
                let mut found = statement.query([])?;
                let mut scanned = 0;
                while let Some(row) = found.next()?.filter(|_| left > 0 && scanned < MAX_NEWEST_SCAN) {
                    scanned += 1;
                    let site = |column| row.get::<_, i64>(column).map(|id| site_ids.get(&id).copied());
                    let (Some(from), Some(to)) = (site(2)?, site(3)?) else { continue };
                    let pair = Pair { from, to };
                    let is_other = table == Table::Transfers && !controller_ids.contains_key(&row.get(5)?);
                    if is_other || !missing.contains_key(&(pair, 0)) || !time.contains(&row.get(1)?) {
                        continue;
                    }
                    let row = read_row(table, row, &site_ids, &controller_ids)?;
                    let column = match &row {
                        Row::Transfer(transfer) if transfer.outcome.done().is_some() => transfer.controller,
                        Row::Minute(_) => 0,
                        _ => continue,
                    };
                    let Some(wanted) = missing.get_mut(&(pair, column)).filter(|wanted| **wanted > 0) else {
                        continue;
                    };
                    *wanted -= 1;
                    left -= usize::from(*wanted == 0);
                    match row {
                        Row::Transfer(transfer) => history.transfers.push(transfer),
                        Row::Minute(minute) => history.minutes.push(minute),
                        Row::Route(_) => {}
                    }
                }
            }
            history.transfers.reverse();
            history.minutes.reverse();
            history.transfers.sort_by_key(|transfer| transfer.at_ms);
            history.minutes.sort_by_key(|minute| minute.at_ms);
            Ok(history)
        };
        read().map_err(|e| self.failed(e))
    }
}

/// The indices of names in another list, by the names' row ids.
fn renumbered((own, ids): (Vec<String>, HashMap<i64, u16>), names: &[String]) -> HashMap<i64, u16> {
    let places = places(&own, names);
    ids.into_iter().filter_map(|(id, index)| Some((id, place(&places, index)?))).collect()
}

/// Replaces controller ids by indices; samples of unknown ones are dropped.
fn rename_controllers(samples: &mut Samples, index: impl Fn(u32) -> Option<u16>) {
    samples
        .transfers
        .retain_mut(|sample| index(sample.controller).map(|id| sample.controller = id.into()).is_some());
}

impl CompactHistory<'_> {
    /// Half hours with records.
    pub(crate) fn half_hours(&self) -> &HalfHours {
        &self.half_hours
    }

    /// The time range of the records.
    pub fn range(&self) -> Range<i64> {
        self.range.clone()
    }

    /// The number of directions with records.
    pub(crate) fn pairs(&self) -> usize {
        self.pairs.keys().filter(|pair| self.kept_pair(**pair).is_some()).count()
    }

    /// Removes samples out of the time range.
    fn keep_range(&self, samples: &mut Samples) {
        samples.transfers.retain(|sample| self.range.contains(&sample.at_ms));
        samples.minutes.retain(|sample| self.range.contains(&sample.at_ms));
    }

    fn kept_pair(&self, pair: Pair) -> Option<Pair> {
        self.kept.as_ref().map_or(Some(pair), |[sites, _]| pair.renumbered(sites))
    }

    /// Keeps the [`MAX_SITES`] sites and [`MAX_CONTROLLERS`] controllers with most records, and
    /// always the baseline: a report has a cell for each controller and pair of sites, and a
    /// store's names may come from others. Returns the number of names that were removed.
    ///
    /// # Errors
    /// If the database fails.
    pub fn limit_names(&mut self) -> Result<usize, StoreError> {
        if self.head.sites.len() <= MAX_SITES && self.head.controllers.len() <= MAX_CONTROLLERS {
            return Ok(0);
        }
        let (mut sites, mut controllers) =
            (vec![0u64; self.head.sites.len()], vec![0u64; self.head.controllers.len()]);
        let count = |counts: &mut Vec<u64>, id: usize, n: usize| {
            if let Some(count) = counts.get_mut(id) {
                *count += n as u64;
            }
        };
        self.visit(&mut |pair, samples| {
            let n = samples.transfers.len() + samples.minutes.len();
            count(&mut sites, pair.from.into(), n);
            count(&mut sites, pair.to.into(), n);
            samples
                .transfers
                .iter()
                .for_each(|sample| count(&mut controllers, sample.controller as usize, 1));
        })?;
        for route in &self.head.routes {
            count(&mut sites, route.pair.from.into(), 1);
            count(&mut sites, route.pair.to.into(), 1);
        }
        if let Some(baseline) = controllers.first_mut() {
            *baseline = u64::MAX;
        }
        let before = self.head.sites.len() + self.head.controllers.len();
        let kept = [
            keep_largest(&mut self.head.sites, &sites, MAX_SITES),
            keep_largest(&mut self.head.controllers, &controllers, MAX_CONTROLLERS),
        ];
        self.kept = Some(kept);
        let mut routes = std::mem::take(&mut self.head.routes);
        routes.retain_mut(|route| self.kept_pair(route.pair).map(|pair| route.pair = pair).is_some());
        self.head.routes = routes;
        Ok(before - self.head.sites.len() - self.head.controllers.len())
    }

    /// Calls `visit` with the samples of each direction, by time. Returns how many directions have
    /// more than fit into memory, and are without their older samples.
    ///
    /// # Errors
    /// If the database fails, or is damaged.
    pub fn visit(&self, visit: &mut dyn FnMut(Pair, &Samples)) -> Result<usize, StoreError> {
        let mut samples = Samples::default();
        let mut pairs = self.pairs.iter().peekable();
        let mut group = Group::default();
        let mut shortened = 0;
        while let Some((pair, [sender, _])) = pairs.peek().copied() {
            let from = pair.from;
            if let Some(chunks) = &self.chunks {
                chunks
                    .read_sender(*sender, &self.half_hours, &mut group)
                    .map_err(|e| chunks.store.failed(e))?;
            }
            while let Some((pair, [sender, receiver])) = pairs.next_if(|(pair, _)| pair.from == from) {
                samples.transfers.clear();
                samples.minutes.clear();
                if let Some(chunks) = &self.chunks {
                    let added = match group.is_whole {
                        true => group.append(*receiver, &mut samples),
                        false => chunks.append([*sender, *receiver], &self.half_hours, &mut samples),
                    };
                    shortened += usize::from(added.map_err(|e| chunks.store.failed(e))?);
                    rename_controllers(&mut samples, |id| chunks.controllers.get(&i64::from(id)).copied());
                    self.keep_range(&mut samples);
                }
                if let Some(tail) = self.tail.get(pair) {
                    samples.transfers.extend_from_slice(&tail.transfers);
                    samples.minutes.extend_from_slice(&tail.minutes);
                    samples.sort();
                }
                let Some(pair) = self.kept_pair(*pair) else { continue };
                if let Some([_, controllers]) = &self.kept {
                    rename_controllers(&mut samples, |id| controllers.get(id as usize).copied().flatten());
                }
                visit(pair, &samples);
            }
        }
        Ok(shortened)
    }
}

/// The encoded chunks of a sender.
#[derive(Default)]
struct Group {
    bytes: Vec<u8>,
    /// Receiver, number of the half hour, and place in `bytes`.
    chunks: Vec<(i64, i64, Range<usize>)>,
    /// Whether these are all of the sender.
    is_whole: bool,
}

impl Group {
    /// Appends the samples of a receiver. Returns whether older ones were dropped.
    fn append(&self, receiver: i64, samples: &mut Samples) -> rusqlite::Result<bool> {
        let first = self.chunks.partition_point(|(other, ..)| *other < receiver);
        let mut is_shortened = false;
        for (_, span, place) in self.chunks[first..].iter().take_while(|(other, ..)| *other == receiver) {
            is_shortened |= append(*span, self.bytes.get(place.clone()), samples)?;
        }
        Ok(is_shortened)
    }
}

/// Appends the samples of a chunk later than the others; `None` is one that is too large. Returns
/// whether older samples were dropped.
fn append(span: i64, bytes: Option<&[u8]>, samples: &mut Samples) -> rusqlite::Result<bool> {
    let damaged = || rusqlite::Error::IntegralValueOutOfRange(4, span);
    samples.append(span, bytes.ok_or_else(damaged)?).map_err(|_| damaged())?;
    let excess = |n: usize| if n > MAX_PAIR_SAMPLES { n / 2 } else { 0 };
    let (transfers, minutes) = (excess(samples.transfers.len()), excess(samples.minutes.len()));
    samples.transfers.drain(..transfers);
    samples.minutes.drain(..minutes);
    Ok(transfers + minutes > 0)
}

impl Chunks<'_> {
    /// Reads the chunks of a sender, if they are not too many.
    fn read_sender(&self, sender: i64, half_hours: &HalfHours, group: &mut Group) -> rusqlite::Result<()> {
        group.bytes.clear();
        // Doubling would take up to three times as much.
        group.bytes.reserve_exact(MAX_GROUP_BYTES);
        group.chunks.clear();
        group.is_whole = false;
        let mut statement = self.store.db.prepare_cached(&format!(
            "SELECT receiver, CASE WHEN length(data) <= {MAX_CHUNK_BYTES} THEN data END FROM chunk WHERE \
             span = ? AND sender = ?"
        ))?;
        for span in half_hours.keys() {
            let mut found = statement.query(params![span, sender])?;
            while let Some(row) = found.next()? {
                let Some(data) = row.get_ref(1)?.as_blob_or_null()? else {
                    return Err(rusqlite::Error::IntegralValueOutOfRange(4, *span));
                };
                if group.bytes.len() + data.len() > MAX_GROUP_BYTES || group.chunks.len() >= MAX_GROUP_CHUNKS
                {
                    return Ok(());
                }
                let start = group.bytes.len();
                group.bytes.extend_from_slice(data);
                group.chunks.push((row.get(0)?, *span, start..group.bytes.len()));
            }
        }
        group.chunks.sort_unstable_by_key(|(receiver, span, _)| (*receiver, *span));
        group.is_whole = true;
        Ok(())
    }

    /// Reads the samples of one direction. Returns whether older ones were dropped.
    fn append(
        &self,
        [sender, receiver]: [i64; 2],
        half_hours: &HalfHours,
        samples: &mut Samples,
    ) -> rusqlite::Result<bool> {
        let mut is_shortened = false;
        let mut statement = self.store.db.prepare_cached(&format!(
            "SELECT CASE WHEN length(data) <= {MAX_CHUNK_BYTES} THEN data END FROM chunk WHERE span = ? AND \
             sender = ? AND receiver = ?"
        ))?;
        for span in half_hours.keys() {
            let mut found = statement.query(params![span, sender, receiver])?;
            if let Some(row) = found.next()? {
                is_shortened |= append(*span, row.get_ref(0)?.as_blob_or_null()?, samples)?;
            }
        }
        Ok(is_shortened)
    }
}
