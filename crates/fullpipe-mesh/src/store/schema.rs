//! The schema of a store, and validation of files that may come from elsewhere.

use super::{Store, StoreError};
use crate::chunk::MAX_CHUNK_BYTES;
use crate::file::is_plain;
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use std::path::Path;

/// Schema version, in `PRAGMA user_version`.
pub(super) const SCHEMA: i64 = 2;
/// The version before, without [`CHUNK_TABLES`]: it is read as it is, and upgraded by a writer.
pub(super) const SCHEMA_WITHOUT_CHUNKS: i64 = 1;
/// Maximum names of sites and of controllers: 64 sites are in a mesh at a time, and former ones
/// keep their names.
pub(super) const MAX_NAMES: usize = 1024;
/// Maximum bytes of a value or row: a chunk is the largest.
const MAX_VALUE_BYTES: i32 = 2 * MAX_CHUNK_BYTES as i32;
/// In `PRAGMA application_id`: "fpme".
pub(super) const APPLICATION: i64 = 0x6670_6d65;

/// The tables.
pub(super) const TABLES: &str = "
CREATE TABLE about(name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE site(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE controller(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE transfer(
  id INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER NOT NULL,
  sender INTEGER NOT NULL, receiver INTEGER NOT NULL,
  period INTEGER NOT NULL, controller INTEGER NOT NULL, trouble INTEGER,
  bytes INTEGER, duration_ns INTEGER, delivery_rate INTEGER, rtt_ns INTEGER, min_rtt_ns INTEGER,
  segments INTEGER,
  retransmitted INTEGER, receive_window_limited REAL, send_buffer_limited REAL, cpu_ns INTEGER) STRICT;
CREATE INDEX transfer_at ON transfer(at_ms);
CREATE TABLE minute(
  id INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER NOT NULL,
  sender INTEGER NOT NULL, receiver INTEGER NOT NULL,
  sent INTEGER NOT NULL, arrived INTEGER NOT NULL, answered INTEGER NOT NULL,
  rtt_min_ns INTEGER, rtt_p50_ns INTEGER, rtt_p95_ns INTEGER, rtt_max_ns INTEGER) STRICT;
CREATE INDEX minute_at ON minute(at_ms);
CREATE TABLE route(
  id INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER NOT NULL,
  sender INTEGER NOT NULL, receiver INTEGER NOT NULL,
  hops TEXT NOT NULL) STRICT;
CREATE INDEX route_at ON route(at_ms);
CREATE TABLE pulled(site INTEGER NOT NULL, store INTEGER NOT NULL, tab INTEGER NOT NULL, id INTEGER NOT NULL,
  PRIMARY KEY(site, store, tab)) STRICT;
";

/// The tables of the records as chunks. `span` counts half hours since 1970.
pub(super) const CHUNK_TABLES: &str = "
CREATE TABLE chunk(
  id INTEGER PRIMARY KEY, span INTEGER NOT NULL, sender INTEGER NOT NULL, receiver INTEGER NOT NULL,
  data BLOB NOT NULL) STRICT;
CREATE UNIQUE INDEX chunk_at ON chunk(span, sender, receiver);
CREATE TABLE half_hour(
  span INTEGER PRIMARY KEY, transfers INTEGER NOT NULL, minutes INTEGER NOT NULL,
  first_ms INTEGER NOT NULL, last_ms INTEGER NOT NULL) STRICT;
";

impl Store {
    /// Verifies that the file is a store of a known version, and notes whether it has chunks.
    pub(super) fn verify_schema(&mut self) -> Result<(), StoreError> {
        // From one snapshot: a writer may upgrade the store meanwhile.
        let _snapshot = self.db.unchecked_transaction().map_err(|e| self.failed(e))?;
        let ask =
            |name| self.db.pragma_query_value(None, name, |r| r.get::<_, i64>(0)).map_err(|e| self.failed(e));
        let reason = match (ask("application_id")?, ask("user_version")?) {
            (APPLICATION, version @ (SCHEMA | SCHEMA_WITHOUT_CHUNKS)) => {
                let has_chunks = version == SCHEMA;
                match self.unexpected_schema(has_chunks).map_err(|e| self.failed(e))? {
                    None => {
                        self.has_chunks = has_chunks;
                        return Ok(());
                    }
                    Some(reason) => reason,
                }
            }
            (APPLICATION, version) => {
                format!(
                    "store version {version} is not supported (supported: {SCHEMA_WITHOUT_CHUNKS} and \
                        {SCHEMA}); use the fullpipe that created it"
                )
            }
            _ => "not a store of a mesh".to_owned(),
        };
        Err(StoreError::NotAStore { path: self.path.clone(), reason })
    }

    /// Adds the tables of chunks to a store of the version before; its rows stay as they are.
    pub(super) fn upgrade(&mut self) -> Result<(), StoreError> {
        if self.has_chunks {
            return Ok(());
        }
        self.db
            .execute_batch(&format!(
                "BEGIN IMMEDIATE; {CHUNK_TABLES} PRAGMA user_version = {SCHEMA}; COMMIT;"
            ))
            .map_err(|e| self.failed(e))?;
        self.has_chunks = true;
        Ok(())
    }

    /// Verifies that the names are as many and of such characters as a node stores.
    pub(super) fn verify_names(&self) -> Result<(), StoreError> {
        match self.unexpected_name().map_err(|e| self.failed(e))? {
            None => Ok(()),
            Some(reason) => Err(StoreError::NotAStore { path: self.path.clone(), reason }),
        }
    }

    /// Finds definitions that no node writes: a crafted file may have endless views in place of
    /// tables.
    fn unexpected_schema(&self, has_chunks: bool) -> rusqlite::Result<Option<String>> {
        let found = definitions(&self.db)?;
        let made = Connection::open_in_memory()?;
        made.execute_batch(TABLES)?;
        if has_chunks {
            made.execute_batch(CHUNK_TABLES)?;
        }
        let made = definitions(&made)?;
        if let Some([_, name, _]) = found.iter().find(|one| !made.contains(one)) {
            let name: String = name.chars().take(40).collect();
            return Ok(Some(format!("not created by a node: unexpected definition of {name:?}")));
        }
        if let Some([_, name, _]) = made.iter().find(|one| !found.contains(one)) {
            return Ok(Some(format!("not created by a node: {name} is missing")));
        }
        Ok(None)
    }

    /// Finds too many names, or one with control characters.
    fn unexpected_name(&self) -> rusqlite::Result<Option<String>> {
        for table in ["site", "controller"] {
            let query = format!("SELECT substr(name, 1, 33) FROM {table} LIMIT {}", MAX_NAMES + 1);
            let mut statement = self.db.prepare(&query)?;
            let names = statement.query_map([], |r| r.get(0))?.collect::<rusqlite::Result<Vec<String>>>()?;
            if names.len() > MAX_NAMES {
                return Ok(Some(format!("more than {MAX_NAMES} {table} names")));
            }
            if let Some(name) = names.iter().find(|name| !is_plain(name)) {
                return Ok(Some(format!("{name:?} is not a valid {table} name")));
            }
        }
        Ok(None)
    }
}

/// Opening a named pipe would block; SQLite reports missing files.
pub(super) fn require_regular_file(path: &Path) -> Result<(), StoreError> {
    if path.metadata().is_ok_and(|about| !about.is_file()) {
        let reason = "not a regular file".to_owned();
        return Err(StoreError::NotAStore { path: path.to_owned(), reason });
    }
    Ok(())
}

/// Disables triggers, views and other code in the file, and limits the size of a value.
pub(super) fn harden(db: &Connection) -> rusqlite::Result<()> {
    db.set_limit(Limit::SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)?;
    let off = [
        DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA,
        DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW,
        DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER,
    ];
    for config in off {
        db.set_db_config(config, false)?;
    }
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true).map(drop)
}

/// The type, name and SQL of all objects except SQLite's own.
fn definitions(db: &Connection) -> rusqlite::Result<Vec<[String; 3]>> {
    // Somewhat more than a store has.
    let query = "SELECT type, name, coalesce(sql, '') FROM sqlite_schema WHERE substr(name, 1, 7) <> \
        'sqlite_' LIMIT 32";
    let mut statement = db.prepare(query)?;
    let all = statement.query_map([], |r| {
        let sql: String = r.get(2)?;
        Ok([r.get(0)?, r.get(1)?, sql.split_whitespace().collect::<Vec<_>>().join(" ")])
    })?;
    all.collect()
}

#[cfg(test)]
mod tests {
    use super::super::FILE;
    use super::super::tests::{filled, store};
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    #[test]
    fn files_that_are_not_stores_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let said = |path: &Path| Store::read(path).unwrap_err().to_string();
        let text = directory.path().join("text");
        std::fs::write(&text, "x".repeat(4096)).unwrap();
        assert!(said(&text).contains("not a database"), "{}", said(&text));
        let other = directory.path().join("other.db");
        Connection::open(&other).unwrap().execute_batch("CREATE TABLE a(b)").unwrap();
        assert!(said(&other).contains("not a store of a mesh"));
        assert!(said(&directory.path().join("none")).contains("unable to open"));
        let later = store(directory.path());
        later.db.pragma_update(None, "user_version", 7).unwrap();
        drop(later);
        assert!(said(directory.path()).contains("version 7"));
    }

    #[test]
    fn a_store_is_read_while_a_writer_upgrades_it() {
        for _ in 0..150 {
            let directory = tempfile::tempdir().unwrap();
            let file = Connection::open(directory.path().join(FILE)).unwrap();
            file.execute_batch(&format!(
                "PRAGMA journal_mode = wal; PRAGMA application_id = {APPLICATION}; \
                 PRAGMA user_version = {SCHEMA_WITHOUT_CHUNKS}; {TABLES}"
            ))
            .unwrap();
            let is_upgraded = AtomicBool::new(false);
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        while !is_upgraded.load(Relaxed) {
                            Store::read(directory.path()).unwrap();
                        }
                    });
                }
                let upgraded = scope.spawn(|| store(directory.path()));
                let upgraded = upgraded.join();
                is_upgraded.store(true, Relaxed);
                upgraded.unwrap();
            });
        }
    }

    #[test]
    fn crafted_store_files_are_refused() {
        let made = |with: &str| {
            let directory = tempfile::tempdir().unwrap();
            drop(filled(directory.path()));
            Connection::open(directory.path().join(FILE)).unwrap().execute_batch(with).unwrap();
            Store::read(directory.path()).and_then(|store| store.history(i64::MIN..i64::MAX)).map(drop)
        };
        made("").unwrap();
        let endless = "DROP TABLE minute; CREATE VIEW minute
            AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)
                       SELECT x AS id, 0 AS at_ms FROM n";
        let trigger = "CREATE TRIGGER t AFTER INSERT ON site BEGIN DELETE FROM transfer; END";
        let many = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 70000) INSERT \
            INTO site(name) SELECT 's' || x FROM n";
        let hops = "WITH RECURSIVE n(x) AS (SELECT '*' UNION ALL SELECT x || ' *' FROM n LIMIT 65) \
            INSERT INTO route SELECT NULL, 0, 1, 2, max(x) FROM n";
        for (with, said) in [
            (endless, "unexpected definition of \"minute\""),
            (trigger, "unexpected definition of \"t\""),
            ("DROP TABLE route", "route is missing"),
            (many, "more than 1024 site names"),
            ("UPDATE site SET name = char(27) || '[31m' WHERE id = 1", "is not a valid site name"),
            ("UPDATE controller SET name = 'a,b' WHERE id = 1", "is not a valid controller name"),
            ("UPDATE transfer SET segments = -5", "out of range"),
            ("UPDATE transfer SET trouble = 99", "out of range"),
            ("UPDATE transfer SET receiver = 99", "out of range"),
            (hops, "out of range"),
            ("UPDATE route SET hops = printf('%.*c', 3000000, ' ')", "too big"),
        ] {
            let error = made(with).unwrap_err().to_string();
            assert!(error.contains(said), "{with}: {error}");
        }
        assert!(Store::read(Path::new("/dev/zero")).unwrap_err().to_string().contains("not a regular file"));
    }
}
