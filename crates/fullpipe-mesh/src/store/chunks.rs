//! The chunks of a store: its records again, compact, for reports.
//!
//! Chunks follow the rows by their ids: an update reads rows after the last id that it has reached,
//! adds them to their chunks, and stores the new id, in one transaction. A reader adds the rows
//! after that id itself, so its result does not depend on when the last update was.

use super::rows::{read_row, select, table_name};
use super::{IN_TIME_RANGE, Store, StoreError, names};
use crate::chunk::{CHUNK_MS, MAX_CHUNK_BYTES, MinuteSample, Samples, TransferSample};
use crate::message::{Row, Table};
use rusqlite::{CachedStatement, OptionalExtension, Params, TransactionBehavior, params};
use std::collections::BTreeMap;
use std::ops::Range;

/// Tables whose rows are in chunks.
const TABLES: [Table; 2] = [Table::Transfers, Table::Minutes];
/// Maximum rows that a reader adds to chunks itself, and the newest rows that a reader of a store
/// without chunks reads.
pub(super) const MAX_TAIL: u32 = 500_000;
/// Half an hour of all directions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct HalfHour {
    /// Transfers.
    pub transfers: u64,
    /// Minutes of probes.
    pub minutes: u64,
    /// Time of the first record, milliseconds since 1970.
    pub first_ms: i64,
    /// Time of the last record.
    pub last_ms: i64,
}

impl HalfHour {
    fn add(&mut self, transfers: u64, minutes: u64, at_ms: i64) {
        self.transfers = self.transfers.saturating_add(transfers);
        self.minutes = self.minutes.saturating_add(minutes);
        self.first_ms = self.first_ms.min(at_ms);
        self.last_ms = self.last_ms.max(at_ms);
    }
}

/// Half hours with records, by number since 1970.
pub(crate) type HalfHours = BTreeMap<i64, HalfHour>;

/// Counts samples by half hour.
pub(crate) fn count_samples<'a>(all: impl IntoIterator<Item = &'a Samples>, counts: &mut HalfHours) {
    let mut count = |transfers, minutes, at_ms: i64| {
        let empty = HalfHour { transfers: 0, minutes: 0, first_ms: i64::MAX, last_ms: i64::MIN };
        counts.entry(at_ms.div_euclid(CHUNK_MS)).or_insert(empty).add(transfers, minutes, at_ms);
    };
    for samples in all {
        samples.transfers.iter().for_each(|sample| count(1, 0, sample.at_ms));
        samples.minutes.iter().for_each(|sample| count(0, 1, sample.at_ms));
    }
}

impl Store {
    /// The id of the last row of a table that is in chunks.
    pub(super) fn chunked(&self, table: Table) -> rusqlite::Result<i64> {
        let id = self.about(&format!("chunked_{}", table_name(table)))?;
        Ok(id.and_then(|id| id.parse().ok()).unwrap_or(0))
    }

    /// The id of the last row of a table.
    pub(super) fn last_id(&self, table: Table) -> rusqlite::Result<i64> {
        let query = format!("SELECT max(id) FROM {}", table_name(table));
        self.db.query_row(&query, [], |r| r.get::<_, Option<i64>>(0)).map(|id| id.unwrap_or(0))
    }

    /// Rows that are not in chunks, at most: ids may have gaps.
    ///
    /// # Errors
    /// If the database fails.
    pub fn count_unchunked_rows(&self) -> Result<u64, StoreError> {
        self.unchunked_rows().map_err(|e| self.failed(e))
    }

    pub(super) fn unchunked_rows(&self) -> rusqlite::Result<u64> {
        let mut rows = 0;
        for table in TABLES {
            rows += self.last_id(table)?.saturating_sub(self.chunked(table)?).max(0) as u64;
        }
        Ok(rows)
    }

    /// Adds up to `most` rows of each table to their chunks. Returns whether there are more. If the
    /// process is killed, the update has happened completely or not at all.
    ///
    /// # Errors
    /// If the database fails; the chunks are as before.
    pub fn update_chunks(&mut self, most: u32) -> Result<bool, StoreError> {
        let update = |store: &mut Store| -> rusqlite::Result<bool> {
            let db = &store.db;
            let transaction = rusqlite::Transaction::new_unchecked(db, TransactionBehavior::Immediate)?;
            let (mut added, mut more) = (BTreeMap::<(i64, i64, i64), Samples>::new(), false);
            for table in TABLES {
                let key = |sender, receiver, at_ms: i64| (at_ms.div_euclid(CHUNK_MS), sender, receiver);
                let (rows, last) = store.read_after(table, store.chunked(table)?, most, &key, &mut added)?;
                more |= rows == most;
                if rows > 0 {
                    db.prepare_cached("INSERT OR REPLACE INTO about VALUES (?, ?)")?
                        .execute(params![format!("chunked_{}", table_name(table)), last.to_string()])?;
                }
            }
            let mut half_hours = HalfHours::new();
            count_samples(added.values(), &mut half_hours);
            for (&(span, sender, receiver), samples) in &mut added {
                if !store.add_to_chunk(span, [sender, receiver], std::mem::take(samples))? {
                    // Damaged chunks are made again from the rows.
                    db.execute_batch(
                        "DELETE FROM chunk; DELETE FROM half_hour; \
                         DELETE FROM about WHERE name IN ('chunked_transfer', 'chunked_minute')",
                    )?;
                    transaction.commit()?;
                    return Ok(true);
                }
            }
            for (span, half_hour) in half_hours {
                db.prepare_cached(
                    "INSERT INTO half_hour VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT(span) DO UPDATE SET \
                     transfers = transfers + ?2, minutes = minutes + ?3, first_ms = min(first_ms, ?4), \
                     last_ms = max(last_ms, ?5)",
                )?
                .execute(params![
                    span,
                    half_hour.transfers as i64,
                    half_hour.minutes as i64,
                    half_hour.first_ms,
                    half_hour.last_ms
                ])?;
            }
            transaction.commit()?;
            Ok(more)
        };
        update(self).map_err(|e| self.failed(e))
    }

    /// Adds samples to a chunk; `false` if the chunk is damaged.
    fn add_to_chunk(
        &self,
        span: i64,
        [sender, receiver]: [i64; 2],
        added: Samples,
    ) -> rusqlite::Result<bool> {
        let mut known = self.db.prepare_cached(&format!(
            "SELECT id, CASE WHEN length(data) <= {MAX_CHUNK_BYTES} THEN data END FROM chunk WHERE span = ? \
             AND sender = ? AND receiver = ?"
        ))?;
        let mut samples = Samples::default();
        let read = |r: &rusqlite::Row<'_>| {
            let data = r.get_ref(1)?.as_blob_or_null()?;
            let whole = data.is_some_and(|data| samples.append(span, data).is_ok());
            Ok((r.get::<_, i64>(0)?, whole))
        };
        let known = known.query_row(params![span, sender, receiver], read).optional()?;
        if let Some((_, false)) = known {
            return Ok(false);
        }
        samples.transfers.extend(added.transfers);
        samples.minutes.extend(added.minutes);
        samples.truncate();
        samples.sort();
        let data = samples.to_bytes();
        match known {
            Some((id, _)) => {
                self.db.prepare_cached("UPDATE chunk SET data = ? WHERE id = ?")?.execute(params![data, id])
            }
            None => self
                .db
                .prepare_cached("INSERT INTO chunk VALUES (NULL, ?, ?, ?, ?)")?
                .execute(params![span, sender, receiver, data]),
        }?;
        Ok(true)
    }

    /// Reads up to `most` rows after an id. Returns how many, and the last id.
    pub(super) fn read_after<K: Ord>(
        &self,
        table: Table,
        after: i64,
        most: u32,
        key: &dyn Fn(i64, i64, i64) -> K,
        into: &mut BTreeMap<K, Samples>,
    ) -> rusqlite::Result<(u32, i64)> {
        let statement = self.db.prepare_cached(&select(table, "id > ?1 ORDER BY id LIMIT ?2"))?;
        self.read_samples(table, statement, params![after, most], key, into)
    }

    /// Reads the rows of a time range, at most [`MAX_TAIL`].
    pub(super) fn read_between<K: Ord>(
        &self,
        table: Table,
        time: &Range<i64>,
        key: &dyn Fn(i64, i64, i64) -> K,
        into: &mut BTreeMap<K, Samples>,
    ) -> rusqlite::Result<()> {
        let statement = self.db.prepare_cached(&select(table, IN_TIME_RANGE))?;
        self.read_samples(table, statement, params![time.start, time.end, MAX_TAIL], key, into).map(drop)
    }

    fn read_samples<K: Ord>(
        &self,
        table: Table,
        mut statement: CachedStatement<'_>,
        params: impl Params,
        key: &dyn Fn(i64, i64, i64) -> K,
        into: &mut BTreeMap<K, Samples>,
    ) -> rusqlite::Result<(u32, i64)> {
        let (sites, controllers) = (names(&self.db, "site")?.1, names(&self.db, "controller")?.1);
        let mut found = statement.query(params)?;
        let (mut rows, mut last) = (0, 0);
        while let Some(row) = found.next()? {
            rows += 1;
            last = row.get(0)?;
            let (sender, receiver): (i64, i64) = (row.get(2)?, row.get(3)?);
            let read = read_row(table, row, &sites, &controllers)?;
            let samples = into.entry(key(sender, receiver, read.pair().0)).or_default();
            match read {
                Row::Transfer(transfer) => {
                    let controller: i64 = row.get(5)?;
                    let controller = u32::try_from(controller)
                        .map_err(|_| rusqlite::Error::IntegralValueOutOfRange(5, controller))?;
                    samples.transfers.push(TransferSample::new(&transfer, controller));
                }
                Row::Minute(minute) => samples.minutes.push(MinuteSample::from(&minute)),
                Row::Route(_) => {}
            }
        }
        Ok((rows, last))
    }

    /// Deletes chunks all of whose rows are deleted, at most `most`.
    pub(super) fn delete_chunks(&self, before_ms: i64, most: u32) -> rusqlite::Result<()> {
        let mut oldest = before_ms;
        for table in TABLES {
            let query = format!("SELECT min(at_ms) FROM {}", table_name(table));
            let first: Option<i64> = self.db.query_row(&query, [], |r| r.get(0))?;
            oldest = oldest.min(first.unwrap_or(i64::MAX));
        }
        let span = oldest.div_euclid(CHUNK_MS);
        self.db
            .prepare_cached(
                "DELETE FROM chunk WHERE id IN (SELECT id FROM chunk WHERE span < ? ORDER BY span LIMIT ?)",
            )?
            .execute(params![span, most])?;
        self.db
            .prepare_cached(
                "DELETE FROM half_hour WHERE span < ?1 AND NOT EXISTS (SELECT 1 FROM chunk WHERE \
                 chunk.span = half_hour.span)",
            )?
            .execute([span])
            .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::store;
    use super::super::{FILE, schema};
    use super::*;
    use crate::message::TRANSFER_ERRORS;
    use crate::record::{Measurement, Minute, Outcome, Pair, Route, RttBand, Transfer};
    use crate::report::{DetectedChanges, Report, Summary, page};
    use fullpipe_units::Span;
    use proptest::prelude::*;
    use rusqlite::Connection;
    use std::path::Path;

    fn row() -> impl Strategy<Value = Row> {
        let pair = prop_oneof![Just(Pair { from: 0, to: 1 }), Just(Pair { from: 1, to: 0 })];
        let at = prop_oneof![9 => 0..20_000_000i64, 1 => -100_000_000..100_000_000i64];
        let measured = (1..100_000_000u64, 1..100_000_000_000u64, 1..1000u32, 0..20u32).prop_map(
            |(bytes, nanos, segments, retransmitted)| {
                Outcome::Done(Box::new(Measurement {
                    bytes,
                    duration: Span::from_nanos(nanos),
                    delivery_rate: None,
                    rtt: Span::from_millis(40),
                    min_rtt: Span::from_millis(40),
                    segments,
                    retransmitted,
                    receive_window_limited: 0.0,
                    send_buffer_limited: 0.0,
                    cpu: Span::ZERO,
                }))
            },
        );
        let failed = prop::sample::select(TRANSFER_ERRORS.to_vec()).prop_map(Outcome::Failed);
        let outcome = prop_oneof![4 => measured, 1 => failed];
        let transfer =
            (at.clone(), pair.clone(), 0..2u16, outcome).prop_map(|(at_ms, pair, controller, outcome)| {
                let period = at_ms.div_euclid(60_000);
                Row::Transfer(Transfer { at_ms, period, pair, controller, outcome })
            });
        let minute = (at.clone(), pair.clone(), 0..60u16, prop::option::of(1..1_000_000_000u64)).prop_map(
            |(at_ms, pair, arrived, rtt)| {
                let rtt = rtt.map(Span::from_nanos).map(|rtt| RttBand {
                    min: rtt,
                    p50: rtt,
                    p95: rtt * 2,
                    max: rtt * 3,
                });
                Row::Minute(Minute { at_ms, pair, sent: 60, arrived, answered: arrived, rtt })
            },
        );
        let route = (at, pair).prop_map(|(at_ms, pair)| Row::Route(Route { at_ms, pair, hops: vec![None] }));
        prop_oneof![6 => transfer, 3 => minute, 1 => route]
    }

    /// The report and its page.
    fn reported(summary: &Summary) -> (Report, String) {
        let report = Report::from_summary(summary, DetectedChanges::default());
        let page = page(summary, &report, &Default::default());
        (report, page)
    }

    fn of_rows(store: &Store, from: i64) -> (Report, String) {
        reported(&Summary::from(&store.history(from..i64::MAX).unwrap()))
    }

    fn of_chunks(store: &Store, from: i64) -> (Report, String) {
        reported(&Summary::new(store.load_compact(from..i64::MAX, u64::MAX).unwrap()).unwrap())
    }

    /// Without printing the pages.
    fn assert_same(found: &(Report, String), expected: &(Report, String)) {
        assert_eq!(found.0, expected.0);
        assert!(found.1 == expected.1, "the pages differ");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

        /// Whenever chunks are updated, a report is that of all rows.
        #[test]
        fn chunks_and_the_rows_after_them_are_all_rows(
            rows in prop::collection::vec(row(), 1..150),
            updates in prop::collection::vec((0..150usize, 1..60u32), 0..6),
            from in prop_oneof![2 => Just(i64::MIN), 1 => 0..10_000_000i64],
        ) {
            let directory = tempfile::tempdir().unwrap();
            let mut store = store(directory.path());
            for (nth, row) in rows.iter().enumerate() {
                store.add(row).unwrap();
                for (_, most) in updates.iter().filter(|(at, _)| *at == nth) {
                    store.update_chunks(*most).unwrap();
                }
            }
            let reader = Store::read(directory.path()).unwrap();
            let whole = of_rows(&reader, from);
            assert_same(&of_chunks(&reader, from), &whole);
            while store.update_chunks(7).unwrap() {
                assert_same(&of_chunks(&reader, from), &whole);
            }
            prop_assert_eq!(reader.count_unchunked_rows().unwrap(), 0);
            assert_same(&of_chunks(&reader, from), &whole);
        }
    }

    /// Two hours of transfers and minutes.
    fn add_hours(store: &mut Store, from: i64) {
        for minute in from..from + 120 {
            for (controller, at_ms) in [(0, minute * 60_000), (1, minute * 60_000 + 30_000)] {
                let (pair, outcome) = (Pair { from: 1, to: 0 }, Outcome::Failed(TRANSFER_ERRORS[2]));
                store
                    .add(&Row::Transfer(Transfer { at_ms, period: minute, pair, controller, outcome }))
                    .unwrap();
            }
            let pair = Pair { from: 1, to: 0 };
            let minute =
                Minute { at_ms: minute * 60_000, pair, sent: 60, arrived: 60, answered: 60, rtt: None };
            store.add(&Row::Minute(minute)).unwrap();
        }
    }

    /// Changes the file, which no connection has open.
    fn execute(directory: &Path, with: &str) {
        Connection::open(directory.join(FILE)).unwrap().execute_batch(with).unwrap();
    }

    fn chunked(directory: &Path) -> Store {
        let mut store = store(directory);
        add_hours(&mut store, 0);
        while store.update_chunks(1000).unwrap() {}
        store
    }

    #[test]
    fn a_store_without_chunks_is_read_and_upgraded_in_place() {
        let directory = tempfile::tempdir().unwrap();
        {
            let old = Connection::open(directory.path().join(FILE)).unwrap();
            old.execute_batch(&format!(
                "PRAGMA application_id = {}; PRAGMA user_version = 1; {}",
                schema::APPLICATION,
                schema::TABLES
            ))
            .unwrap();
            let rows = "INSERT INTO site VALUES (1, 'lab'), (2, 'sea'); \
                INSERT INTO controller VALUES (1, 'cubic'); \
                WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 100) \
                INSERT INTO transfer SELECT NULL, x * 60000, 1, 2, x, 1, 3, NULL, NULL, NULL, NULL, NULL, \
                NULL, NULL, NULL, NULL, NULL FROM n;";
            old.execute_batch(rows).unwrap();
        }
        let reader = Store::read(directory.path()).unwrap();
        let whole = of_rows(&reader, i64::MIN);
        assert_eq!(whole.0.pairs[0].transfers, 100);
        assert_eq!(of_chunks(&reader, i64::MIN), whole);
        assert_eq!(reader.rows_after(Table::Transfers, "lab", 0, 1 << 20).unwrap().len(), 100);
        drop(reader);
        let mut writer = store(directory.path());
        assert_eq!(writer.count_unchunked_rows().unwrap(), 100);
        while writer.update_chunks(30).unwrap() {}
        assert_eq!(of_chunks(&writer, i64::MIN), of_rows(&writer, i64::MIN));
        assert_eq!(of_chunks(&writer, i64::MIN).0.pairs[0].transfers, 100);
        assert_eq!(writer.integrity_error().unwrap(), None);
        drop(store(directory.path()));
    }

    #[test]
    fn crafted_chunks_are_refused_and_made_again_by_a_writer() {
        let compact = |directory: &Path| {
            let store = Store::read(directory)?;
            let mut records = store.load_compact(i64::MIN..i64::MAX, u64::MAX)?;
            records.limit_names()?;
            Summary::new(records).map(drop)
        };
        for (with, error) in [
            ("UPDATE chunk SET data = x'00'", "out of range"),
            ("UPDATE chunk SET data = x'01ffffffffff7f00'", "out of range"),
            ("UPDATE chunk SET data = zeroblob(300000000) WHERE id = 1", "out of range"),
            ("UPDATE chunk SET receiver = 99 WHERE id = 1", "out of range"),
            ("DROP INDEX chunk_at", "chunk_at is missing"),
            ("DROP TABLE half_hour; CREATE VIEW half_hour AS SELECT 1 AS span", "unexpected definition"),
        ] {
            let directory = tempfile::tempdir().unwrap();
            drop(chunked(directory.path()));
            compact(directory.path()).unwrap();
            execute(directory.path(), with);
            let found = compact(directory.path()).unwrap_err().to_string();
            assert!(found.contains(error), "{with}: {found}");
        }
        // Half hours without chunks, and at the ends of time, are as good as none.
        for with in [
            "UPDATE half_hour SET transfers = -5, minutes = 9223372036854775807, \
                first_ms = -9223372036854775808",
            "INSERT INTO half_hour VALUES (9223372036854775807, 1, 1, 1, 1), \
                (-9223372036854775808, 1, 1, 1, 1)",
            "INSERT OR REPLACE INTO about VALUES ('chunked_transfer', '99999999999'), \
                ('chunked_minute', '-7')",
        ] {
            let directory = tempfile::tempdir().unwrap();
            drop(chunked(directory.path()));
            execute(directory.path(), with);
            compact(directory.path()).unwrap();
        }
        let directory = tempfile::tempdir().unwrap();
        drop(chunked(directory.path()));
        execute(directory.path(), "UPDATE chunk SET data = x'02' WHERE id = 2");
        let mut store = store(directory.path());
        add_hours(&mut store, 30);
        while store.update_chunks(1000).unwrap() {}
        assert_eq!(of_chunks(&store, i64::MIN), of_rows(&store, i64::MIN));
    }

    #[test]
    fn chunks_are_deleted_after_their_rows() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = chunked(directory.path());
        let chunks = |store: &Store| -> (i64, i64) {
            let count = |table| {
                store.db.query_row(&format!("SELECT count(*) FROM {table}"), [], |r| r.get(0)).unwrap()
            };
            (count("chunk"), count("half_hour"))
        };
        assert_eq!(chunks(&store), (4, 4));
        // Of both tables all rows of the first hour and 20 minutes, in pieces.
        let until = 80 * 60_000;
        assert_eq!(store.delete_older_than(until, 40).unwrap(), 80);
        assert_eq!(chunks(&store), (4, 4), "transfers of the first half hour are left");
        while store.delete_older_than(until, 40).unwrap() > 0 {}
        assert_eq!(chunks(&store), (2, 2));
        // What is left of a half hour stays in its chunk.
        assert_eq!(of_chunks(&store, until), of_rows(&store, until));
        while store.delete_older_than(i64::MAX, 100).unwrap() > 0 {}
        store.delete_older_than(i64::MAX, 100).unwrap();
        assert_eq!(chunks(&store), (0, 0));
    }

    #[test]
    fn a_sender_with_very_many_samples_is_read_direction_by_direction_without_the_oldest() {
        let directory = tempfile::tempdir().unwrap();
        let writer = chunked(directory.path());
        // Chunks of nearly a megabyte, more than are in memory at a time.
        let sample = |n: i64| TransferSample {
            at_ms: n % CHUNK_MS,
            period: n,
            controller: 1,
            result: Err(TRANSFER_ERRORS[0]),
        };
        let mut samples =
            Samples { transfers: (0..30_000).map(|n| sample(n * 60)).collect(), minutes: Vec::new() };
        let mut periods = 0i64;
        samples.transfers.iter_mut().for_each(|sample| {
            periods ^= i64::MAX / 3;
            sample.period = periods;
        });
        let data = samples.to_bytes();
        for span in 100..240 {
            writer.add_to_chunk(span, [1, 2], Samples::default()).unwrap();
            writer.db.execute("UPDATE chunk SET data = ? WHERE span = ?", params![data, span]).unwrap();
            writer
                .db
                .execute(
                    "INSERT INTO half_hour VALUES (?, 30000, 0, ?, ?)",
                    params![span, span * CHUNK_MS, span * CHUNK_MS],
                )
                .unwrap();
        }
        assert!(data.len() > 300_000, "{}", data.len());
        let transfers = |range| {
            let summary = Summary::new(writer.load_compact(range, u64::MAX).unwrap()).unwrap();
            let report = Report::from_summary(&summary, DetectedChanges::default());
            let transfers: Vec<u64> = report.pairs.iter().map(|pair| pair.transfers).collect();
            (summary.shortened_paths, summary.from_ms, transfers)
        };
        let first = 170 * CHUNK_MS;
        assert_eq!(transfers(first..i64::MAX), (0, first, vec![70 * 30_000]));
        // The first 134 chunks have more than four million transfers, of which the newer half stays.
        let (shortened, from_ms, transfers) = transfers(i64::MIN..i64::MAX);
        assert_eq!((shortened, transfers), (1, vec![134 * 30_000 / 2 + 6 * 30_000, 240]));
        assert_eq!(from_ms, 0, "of the other direction");
        // A bound selects the newest half hours.
        let bounded = writer.load_compact(i64::MIN..i64::MAX, 60_000).unwrap();
        assert_eq!(bounded.bounded_ms, Some(238 * CHUNK_MS));
        let report = Report::from_summary(&Summary::new(bounded).unwrap(), DetectedChanges::default());
        assert_eq!(report.pairs.iter().map(|pair| pair.transfers).collect::<Vec<_>>(), [60_000]);
    }
}
