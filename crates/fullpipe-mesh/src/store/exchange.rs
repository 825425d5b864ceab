//! Exchange of records between stores.

use super::rows::{insert, read_row, select};
use super::schema::MAX_NAMES;
use super::{Store, StoreError, names};
use crate::message::{Row, Table};
use crate::wire::Writer;
use rusqlite::{OptionalExtension, params};

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

impl Store {
    /// Imports rows of another store in one transaction, with the last id, from which the next
    /// import continues.
    ///
    /// # Errors
    /// If a row refers to an unknown site or controller, or the database cannot be written.
    pub fn import<'a>(
        &mut self,
        from: &Source,
        table: Table,
        rows: impl IntoIterator<Item = &'a Row>,
        last: u64,
    ) -> Result<(), StoreError> {
        let pull = || -> rusqlite::Result<bool> {
            let transaction = self.db.unchecked_transaction()?;
            let ids = |table, names: &[String]| -> rusqlite::Result<Vec<i64>> {
                names.iter().map(|name| self.named(table, name)).collect()
            };
            let (sites, controllers) = (ids("site", &from.sites)?, ids("controller", &from.controllers)?);
            let most = "SELECT max((SELECT count(*) FROM site), (SELECT count(*) FROM controller))";
            if self.db.query_row(most, [], |r| r.get::<_, i64>(0))? > MAX_NAMES as i64 {
                return Ok(false);
            }
            for row in rows {
                insert(&self.db, row, &sites, &controllers)?;
            }
            let site = self.named("site", &from.site)?;
            self.db.execute(
                "INSERT OR REPLACE INTO pulled VALUES (?, ?, ?, ?)",
                params![site, from.store as i64, table as i64, last as i64],
            )?;
            transaction.commit().map(|()| true)
        };
        if pull().map_err(|e| self.failed(e))? {
            Ok(())
        } else {
            Err(StoreError::Names { site: from.site.clone() })
        }
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
        let read = || -> rusqlite::Result<Vec<(u64, Row)>> {
            let (sites, controllers) = (names(&self.db, "site")?.1, names(&self.db, "controller")?.1);
            let condition = "id > ?1 AND sender = (SELECT id FROM site WHERE name = ?2) ORDER BY id";
            let mut statement = self.db.prepare_cached(&select(table, condition))?;
            let mut found = statement.query(params![after as i64, site])?;
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

#[cfg(test)]
mod tests {
    use super::super::tests::{filled, store};
    use super::*;
    use crate::message::tests::rows;

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
                to.import(&source, table, rows.iter().map(|(_, row)| row), last).unwrap();
                asked += 1;
            }
        }
        assert!(asked > 3, "in pieces: {asked}");
        let history = to.history(i64::MIN..i64::MAX).unwrap();
        assert_eq!(history.transfers.len() + history.minutes.len() + history.routes.len(), rows().len());
        assert!(history.transfers.iter().all(|t| history.name(t.pair) == "sea → lab"));
        assert_eq!(history.controllers[usize::from(history.transfers[0].controller)], "bbr");
        assert!(from.rows_after(Table::Transfers, "lab", 0, 9999).unwrap().is_empty(), "lab sent nothing");
    }

    #[test]
    fn a_source_with_too_many_names_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let mut to = store(directory.path());
        let sites = (0..2000).map(|i| format!("s{i}")).collect();
        let source =
            Source { site: "sea".into(), store: 7, sites, controllers: vec!["cubic".into(), "bbr".into()] };
        let error = to.import(&source, Table::Transfers, &rows()[..1], 1).unwrap_err().to_string();
        assert!(error.contains("sea names more"), "{error}");
        assert_eq!(to.names().unwrap().1, ["lab", "sea"], "nothing of it stays");
    }
}
