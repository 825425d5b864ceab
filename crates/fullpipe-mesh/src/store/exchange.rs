//! Exchange of records between stores.

use super::rows::{insert, read_row, select, table_name};
use super::schema::MAX_NAMES;
use super::{Store, StoreError, names};
use crate::message::{Row, Table};
use crate::wire::Writer;
use fullpipe_units::Span;
use rusqlite::{OptionalExtension, params};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

/// Another site's store and the names its records refer to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// The site.
    pub site: String,
    /// The store's id.
    pub store: u64,
    /// Site names.
    pub sites: Vec<String>,
    /// Controller names.
    pub controllers: Vec<String>,
}

/// The result of an import.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Imported {
    /// Rows stored.
    pub stored: u64,
    /// Rows skipped because the store already has a record of that direction, controller and time.
    pub duplicates: u64,
    /// Rows skipped because the store has as many of this site as allowed.
    pub excess: u64,
}

/// Records of one direction (and controller) per period or minute that are stored: a clock that was
/// set back repeats a time once.
const MAX_PER_SLOT: u32 = 2;

/// Stores of a site whose last imported id is kept: a site has one at a time, and chooses its number.
const MAX_STORES: u32 = 8;

/// The id of a name that is not looked up yet; SQLite's ids start at 1.
const UNRESOLVED: i64 = 0;

/// What identifies a record besides its sender: time slot, receiver and controller.
type SlotKey = (i64, i64, i64);

impl Store {
    /// Imports rows of another store in one transaction, with the last id, from which the next
    /// import continues. With a `limit`, at most so many rows of the site's table are kept in all,
    /// however often the site sends them and whatever id its store claims, and repeated records are
    /// skipped; without one the source is trusted.
    ///
    /// # Errors
    /// If a row refers to an unknown site or controller, or the database cannot be written.
    pub fn import<'a>(
        &mut self,
        from: &Source,
        table: Table,
        rows: impl IntoIterator<Item = &'a Row>,
        last: u64,
        limit: Option<u64>,
    ) -> Result<Imported, StoreError> {
        let import = || -> rusqlite::Result<Option<Imported>> {
            let transaction = self.db.unchecked_transaction()?;
            let site = self.named("site", &from.site)?;
            let mut present = self.rows_of(table, site)?;
            // Only names that rows refer to get an id.
            let mut sites = vec![UNRESOLVED; from.sites.len()];
            let mut controllers = vec![UNRESOLVED; from.controllers.len()];
            let length = self.slot_ms(table)?;
            let mut slots: HashMap<i64, HashMap<SlotKey, u32>> = HashMap::new();
            let mut imported = Imported::default();
            for row in rows {
                let (at_ms, pair) = row.pair();
                self.resolve_name("site", &from.sites, &mut sites, pair.from)?;
                let receiver = self.resolve_name("site", &from.sites, &mut sites, pair.to)?;
                let controller = match row {
                    Row::Transfer(transfer) => {
                        let id = transfer.controller;
                        self.resolve_name("controller", &from.controllers, &mut controllers, id)?
                    }
                    _ => 0,
                };
                let Some(limit) = limit else {
                    insert(&self.db, row, &sites, &controllers)?;
                    present += 1;
                    imported.stored += 1;
                    continue;
                };
                let slot = at_ms.div_euclid(length);
                let known = match slots.entry(slot) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(unknown) => unknown.insert(self.slot_counts(table, site, slot, length)?),
                };
                let count = known.entry((slot, receiver, controller)).or_default();
                if *count >= MAX_PER_SLOT
                    || (*count > 0 && self.has_row(table, [site, receiver, controller], row)?)
                {
                    imported.duplicates += 1;
                    continue;
                }
                if present >= limit {
                    imported.excess += 1;
                    continue;
                }
                insert(&self.db, row, &sites, &controllers)?;
                *count += 1;
                present += 1;
                imported.stored += 1;
            }
            let most = "SELECT max((SELECT count(*) FROM site), (SELECT count(*) FROM controller))";
            if self.db.query_row(most, [], |r| r.get::<_, i64>(0))? > MAX_NAMES as i64 {
                return Ok(None);
            }
            self.db.execute(
                "INSERT OR REPLACE INTO pulled VALUES (?, ?, ?, ?)",
                params![site, from.store as i64, table as i64, last as i64],
            )?;
            // The ids of the latest stores: a replaced row gets a new rowid.
            self.db.execute(
                "DELETE FROM pulled WHERE site = ?1 AND tab = ?2 AND rowid NOT IN (SELECT rowid FROM pulled \
                 WHERE site = ?1 AND tab = ?2 ORDER BY rowid DESC LIMIT ?3)",
                params![site, table as i64, MAX_STORES],
            )?;
            transaction.commit()?;
            self.row_counts.borrow_mut().entry(table).or_default().insert(site, present);
            Ok(Some(imported))
        };
        match import().map_err(|e| self.failed(e))? {
            Some(imported) => Ok(imported),
            None => Err(StoreError::Names { site: from.site.clone() }),
        }
    }

    /// The id of a name that a row refers to, inserting it if needed.
    fn resolve_name(&self, table: &str, names: &[String], ids: &mut [i64], id: u16) -> rusqlite::Result<i64> {
        let unknown = || rusqlite::Error::InvalidParameterName("unknown site or controller".into());
        let (resolved, name) =
            ids.get_mut(usize::from(id)).zip(names.get(usize::from(id))).ok_or_else(unknown)?;
        if *resolved == UNRESOLVED {
            *resolved = self.named(table, name)?;
        }
        Ok(*resolved)
    }

    /// Rows of a sender in a table. All senders are counted once.
    fn rows_of(&self, table: Table, site: i64) -> rusqlite::Result<u64> {
        let mut counts = self.row_counts.borrow_mut();
        let by_site = match counts.entry(table) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                let query = format!("SELECT sender, count(*) FROM {} GROUP BY sender", table_name(table));
                let mut statement = self.db.prepare(&query)?;
                let found = statement
                    .query_map([], |r| Ok((r.get(0)?, r.get::<_, i64>(1)?.max(0) as u64)))?
                    .collect::<rusqlite::Result<_>>()?;
                unknown.insert(found)
            }
        };
        Ok(by_site.get(&site).copied().unwrap_or(0))
    }

    /// The length of a time slot of a table, in which a direction has one record.
    fn slot_ms(&self, table: Table) -> rusqlite::Result<i64> {
        Ok(slot_ms(table, self.period()?))
    }

    /// The records of a sender in a time slot, by receiver and controller.
    fn slot_counts(
        &self,
        table: Table,
        site: i64,
        slot: i64,
        length: i64,
    ) -> rusqlite::Result<HashMap<SlotKey, u32>> {
        let controller = if table == Table::Transfers { "controller" } else { "0" };
        let query = format!(
            "SELECT receiver, {controller}, count(*) FROM {} WHERE at_ms >= ? AND at_ms < ? AND sender = ? \
             GROUP BY 1, 2",
            table_name(table)
        );
        let (start, end) = (slot.saturating_mul(length), slot.saturating_add(1).saturating_mul(length));
        let mut statement = self.db.prepare_cached(&query)?;
        let found = statement.query_map(params![start, end, site], |r| {
            Ok(((slot, r.get(0)?, r.get(1)?), r.get::<_, u32>(2)?))
        })?;
        found.collect()
    }

    /// Whether the store has this very record.
    fn has_row(
        &self,
        table: Table,
        [site, receiver, controller]: [i64; 3],
        row: &Row,
    ) -> rusqlite::Result<bool> {
        let (at_ms, _) = row.pair();
        let query = format!(
            "SELECT count(*) FROM {} WHERE at_ms = ? AND sender = ? AND receiver = ?{}",
            table_name(table),
            if table == Table::Transfers { " AND controller = ? AND period = ?" } else { "" }
        );
        let mut statement = self.db.prepare_cached(&query)?;
        let count: i64 = match row {
            Row::Transfer(t) => {
                statement.query_row(params![at_ms, site, receiver, controller, t.period], |r| r.get(0))?
            }
            _ => statement.query_row(params![at_ms, site, receiver], |r| r.get(0))?,
        };
        Ok(count > 0)
    }

    /// The id of the last row imported from a store.
    ///
    /// # Errors
    /// If the database fails.
    pub fn last_imported(&self, site: &str, store: u64, table: Table) -> Result<u64, StoreError> {
        let id = self.db.query_row(
            "SELECT pulled.id FROM pulled JOIN site ON site.id = pulled.site WHERE site.name = ? AND \
                store = ? AND tab = ?",
            params![site, store as i64, table as i64],
            |r| r.get::<_, i64>(0),
        );
        id.optional().map(|id| id.unwrap_or(0) as u64).map_err(|e| self.failed(e))
    }

    /// The store's id, and the names its records refer to.
    ///
    /// # Errors
    /// If the database fails.
    pub fn names(&self) -> Result<(u64, Vec<String>, Vec<String>), StoreError> {
        let names = || Ok((self.number, names(&self.db, "site")?.0, names(&self.db, "controller")?.0));
        names().map_err(|e| self.failed(e))
    }

    /// Rows of the sender `site` after the id `after`, in order, up to `bytes` encoded bytes. Site
    /// and controller ids refer to [`names`](Store::names).
    ///
    /// # Errors
    /// If the database fails.
    pub fn rows_after(
        &self,
        table: Table,
        site: &str,
        after: u64,
        bytes: usize,
    ) -> Result<Vec<(u64, Row)>, StoreError> {
        // Ids are those of SQLite, which are signed.
        self.rows_within(table, site, after..i64::MAX as u64, bytes)
    }

    /// The highest id in a table; 0 if it is empty.
    ///
    /// # Errors
    /// If the database fails.
    pub fn highest_id(&self, table: Table) -> Result<u64, StoreError> {
        self.last_id(table).map(|id| id.max(0) as u64).map_err(|e| self.failed(e))
    }

    /// As [`rows_after`](Store::rows_after), among the ids after the first and up to the last of
    /// `ids`.
    ///
    /// # Errors
    /// If the database fails.
    pub fn rows_within(
        &self,
        table: Table,
        site: &str,
        ids: Range<u64>,
        bytes: usize,
    ) -> Result<Vec<(u64, Row)>, StoreError> {
        let number = |id: u64| i64::try_from(id).unwrap_or(i64::MAX);
        let read = || -> rusqlite::Result<Vec<(u64, Row)>> {
            let (sites, controllers) = (names(&self.db, "site")?.1, names(&self.db, "controller")?.1);
            let condition =
                "id > ?1 AND id <= ?3 AND sender = (SELECT id FROM site WHERE name = ?2) ORDER BY id";
            let mut statement = self.db.prepare_cached(&select(table, condition))?;
            let mut found = statement.query(params![number(ids.start), site, number(ids.end)])?;
            let (mut rows, mut size) = (Vec::new(), 0);
            while let Some(row) = found.next()? {
                let id = row.get::<_, i64>(0)? as u64;
                let row = read_row(table, row, &sites, &controllers)?;
                let mut written = Writer::default();
                row.write(&mut written);
                size += written.0.len() + 8;
                if size > bytes {
                    break;
                }
                rows.push((id, row));
            }
            Ok(rows)
        };
        read().map_err(|e| self.failed(e))
    }
}

/// As [`Store::slot_ms`], for a mesh of this period.
pub(crate) fn slot_ms(table: Table, period: Span) -> i64 {
    match table {
        Table::Transfers => i64::try_from(period.as_nanos() / 1_000_000).unwrap_or(i64::MAX).max(1),
        Table::Minutes => 60_000,
        // A node traces a direction once in ten minutes, at most.
        Table::Routes => 600_000,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{filled, store};
    use super::*;
    use crate::message::tests::rows;
    use crate::record::{Minute, Pair};

    #[test]
    fn stores_are_merged_and_imports_resume() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let from = filled(one.path());
        let mut to = Store::open(two.path(), ["sky", "sea"], ["reno"]).unwrap();
        let (store, sites, controllers) = from.names().unwrap();
        let source = Source { site: "sea".into(), store, sites, controllers };
        let mut asked = 0;
        for table in Table::ALL {
            loop {
                let after = to.last_imported("sea", store, table).unwrap();
                let rows = from.rows_after(table, "sea", after, 300).unwrap();
                if rows.is_empty() {
                    break;
                }
                let last = rows.last().unwrap().0;
                to.import(&source, table, rows.iter().map(|(_, row)| row), last, None).unwrap();
                asked += 1;
            }
        }
        assert!(asked > 3, "in pieces: {asked}");
        let history = to.history(i64::MIN..i64::MAX).unwrap();
        assert_eq!(history.transfers.len() + history.minutes.len() + history.routes.len(), rows().len());
        assert!(history.transfers.iter().all(|t| history.name(t.pair) == "sea → lab"));
        assert_eq!(history.controllers[usize::from(history.transfers[0].controller)], "bbr");
        assert!(from.rows_after(Table::Transfers, "lab", 0, 9999).unwrap().is_empty(), "lab sent nothing");
        // In ranges of ids, of which the first of each is excluded.
        for table in Table::ALL {
            let all = from.rows_after(table, "sea", 0, 99_999).unwrap();
            let last = from.highest_id(table).unwrap();
            assert!(all.last().is_none_or(|(id, _)| *id <= last));
            let pieces = (0..last).map(|id| from.rows_within(table, "sea", id..id + 1, 99_999).unwrap());
            assert_eq!(pieces.flatten().collect::<Vec<_>>(), all);
        }
    }

    #[test]
    fn a_source_with_too_many_names_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let mut to = store(directory.path());
        let sites = (0..2000).map(|i| if i == 0 { "sea".into() } else { format!("s{i}") }).collect();
        let source =
            Source { site: "sea".into(), store: 7, sites, controllers: vec!["cubic".into(), "bbr".into()] };
        let to_all: Vec<Row> = (1..2000).map(|to| minute(i64::from(to) * 60_000, to)).collect();
        let error = to.import(&source, Table::Minutes, &to_all, 1, Some(u64::MAX)).unwrap_err().to_string();
        assert!(error.contains("sea names more"), "{error}");
        assert_eq!(to.names().unwrap().1, ["lab", "sea"], "nothing of it stays");
    }
    fn minute(at_ms: i64, to: u16) -> Row {
        let pair = Pair { from: 0, to };
        Row::Minute(Minute { at_ms, pair, sent: 60, arrived: 60, answered: 60, rtt: None })
    }

    fn source(store: u64) -> Source {
        let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect();
        Source { site: "sea".into(), store, sites: names(&["sea", "lab"]), controllers: names(&["cubic"]) }
    }

    #[test]
    fn names_without_records_get_no_id() {
        let directory = tempfile::tempdir().unwrap();
        let mut to = store(directory.path());
        let mut source = source(7);
        source.sites.extend((0..1000).map(|i| format!("s{i}")));
        source.controllers.extend((0..1000).map(|i| format!("c{i}")));
        let imported = to.import(&source, Table::Minutes, &[minute(0, 1)], 1, Some(10)).unwrap();
        assert_eq!(imported, Imported { stored: 1, ..Imported::default() });
        let (_, sites, controllers) = to.names().unwrap();
        assert_eq!((sites, controllers.len()), (vec!["lab".to_owned(), "sea".into()], 2));
    }

    #[test]
    fn a_site_that_repeats_its_records_under_other_store_ids_keeps_its_bound() {
        let directory = tempfile::tempdir().unwrap();
        let mut to = store(directory.path());
        let rows: Vec<Row> = (0..100).map(|i| minute(i * 60_000, 1)).collect();
        for id in 0..5 {
            to.import(&source(id), Table::Minutes, &rows, 100, Some(1000)).unwrap();
        }
        assert_eq!(to.history(i64::MIN..i64::MAX).unwrap().minutes.len(), 100, "each record once");
        // Records of the same minutes with other times: one for a clock that was set back, no more.
        for shift in 1..20 {
            let shifted: Vec<Row> = (0..100).map(|i| minute(i * 60_000 + shift, 1)).collect();
            to.import(&source(9), Table::Minutes, &shifted, 100, Some(1000)).unwrap();
        }
        assert_eq!(to.history(i64::MIN..i64::MAX).unwrap().minutes.len(), 200);
        // Nor do the numbers of its stores accumulate; the latest ones stay.
        for id in 100..200 {
            to.import(&source(9), Table::Minutes, &rows, 100, Some(1000)).unwrap();
            to.import(&source(id), Table::Minutes, &rows, 100, Some(1000)).unwrap();
        }
        let kept: u32 = to.db.query_row("SELECT count(*) FROM pulled", [], |r| r.get(0)).unwrap();
        assert_eq!(kept, MAX_STORES);
        for (id, last) in [(9, 100), (199, 100), (100, 0)] {
            assert_eq!(to.last_imported("sea", id, Table::Minutes).unwrap(), last, "{id}");
        }
        let more: Vec<Row> = (100..2000).map(|i| minute(i * 60_000, 1)).collect();
        let imported = to.import(&source(10), Table::Minutes, &more, 1900, Some(1000)).unwrap();
        assert_eq!(imported, Imported { stored: 800, duplicates: 0, excess: 1100 });
        // Deleted rows make room.
        while to.delete_older_than(50 * 60_000, 30).unwrap() > 0 {}
        let imported = to.import(&source(11), Table::Minutes, &more, 1900, Some(1000)).unwrap();
        assert_eq!(imported, Imported { stored: 100, duplicates: 800, excess: 1000 });
    }
}
