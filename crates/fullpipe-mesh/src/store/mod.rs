//! The store of records: an SQLite database in a site's own directory, with one writing node and
//! any number of readers.
//!
//! In WAL mode with one transaction per record, a crash at any moment leaves a consistent database
//! with all but the last record. Failed writes, for example on a full disk, are errors; earlier
//! records stay.

mod chunks;
mod compact;
mod directory;
mod exchange;
mod rows;
mod schema;

pub(crate) use chunks::HalfHour;
pub use compact::CompactHistory;
pub(crate) use directory::BUDGET;
pub use directory::Directory;
pub(crate) use exchange::slot_ms;
pub use exchange::{Imported, Source};

use crate::message::{Row, Table};
use crate::record::History;
use fullpipe_units::Span;
use rows::{insert, read_row, select, table_name};
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use schema::{APPLICATION, CHUNK_TABLES, MAX_NAMES, SCHEMA, TABLES, harden, require_regular_file};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// File name of the database in its directory.
pub const FILE: &str = "mesh.db";

/// The condition and order of the rows of a time range, at most so many.
const IN_TIME_RANGE: &str = "at_ms >= ?1 AND at_ms < ?2 ORDER BY at_ms, id LIMIT ?3";

/// A store.
#[derive(Debug)]
pub struct Store {
    db: Connection,
    path: PathBuf,
    number: u64,
    /// Whether the file has the tables of chunks.
    has_chunks: bool,
    sites: Vec<i64>,
    controllers: Vec<i64>,
    /// Rows by table and sender, once they have been counted.
    row_counts: RefCell<HashMap<Table, HashMap<i64, u64>>>,
}

/// Why a store operation failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk is full.
    #[error("{}: the disk is full", .0.display())]
    Full(PathBuf),
    /// The file is not a store, or of another version.
    #[error("{}: {reason}", path.display())]
    NotAStore {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The own mesh file's names do not fit the store.
    #[error(
        "{}: the records in it name so many sites or controllers that those of the mesh file do not \
            fit (at most {}); start with another store", .0.display(), MAX_NAMES
    )]
    NoRoomForNames(PathBuf),
    /// A site refers to too many sites or controllers.
    #[error("{site} names more than {} sites or controllers; its records are refused", MAX_NAMES)]
    Names {
        /// The site.
        site: String,
    },
    /// An SQLite error.
    #[error("{}: {source}", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: rusqlite::Error,
    },
}

/// The database file of a store given as directory or file.
pub fn file(path: &Path) -> PathBuf {
    if path.is_dir() { path.join(FILE) } else { path.to_owned() }
}

fn full(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DiskFull, SystemIoFailure};
    // A memory-mapped file such as the WAL index cannot grow on a full disk; SQLite reports that as
    // an I/O error.
    matches!(error.sqlite_error_code(), Some(DiskFull))
        || (error.sqlite_error_code() == Some(SystemIoFailure)
            && error.sqlite_error().is_some_and(|e| e.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE))
}

impl Store {
    /// Opens the store in the existing `directory`, creating it if needed. The path must not contain
    /// links ([`Directory::path`]).
    ///
    /// # Errors
    /// If the file is not a store or cannot be written.
    pub fn open<'a>(
        directory: &Path,
        sites: impl IntoIterator<Item = &'a str>,
        controllers: impl IntoIterator<Item = &'a str>,
    ) -> Result<Store, StoreError> {
        let path = directory.join(FILE);
        require_regular_file(&path)?;
        let flags = OpenFlags::default() | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let db = Connection::open_with_flags(&path, flags).map_err(|source| failed(&path, source))?;
        harden(&db).map_err(|source| failed(&path, source))?;
        let mut store = Store {
            db,
            path,
            number: 0,
            has_chunks: false,
            sites: Vec::new(),
            controllers: Vec::new(),
            row_counts: RefCell::default(),
        };
        let (sites, controllers): (Vec<&str>, Vec<&str>) =
            (sites.into_iter().collect(), controllers.into_iter().collect());
        store.prepare().map_err(|e| store.failed(e))?;
        store.verify_schema()?;
        store.upgrade()?;
        store.make_room_for_names("site", &sites)?;
        store.make_room_for_names("controller", &controllers)?;
        store.verify_names()?;
        store.assign_id().map_err(|e| store.failed(e))?;
        store.number = store.read_id().map_err(|e| store.failed(e))?;
        for name in sites {
            let id = store.named("site", name).map_err(|e| store.failed(e))?;
            store.sites.push(id);
        }
        for name in controllers {
            let id = store.named("controller", name).map_err(|e| store.failed(e))?;
            store.controllers.push(id);
        }
        Ok(store)
    }

    /// Opens a store read-only, whether its node runs or not. `path` is the directory or the file.
    ///
    /// # Errors
    /// If there is no store or it cannot be read.
    pub fn read(path: &Path) -> Result<Store, StoreError> {
        let path = file(path);
        require_regular_file(&path)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let open = |path: &Path, flags| {
            let db = Connection::open_with_flags(path, flags)?;
            db.busy_timeout(Duration::from_secs(5))?;
            harden(&db)?;
            // Opening alone reads nothing.
            db.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
            Ok(db)
        };
        let db = open(&path, flags).or_else(|e: rusqlite::Error| {
            // A reader without write access to the directory cannot share the WAL with its writer;
            // without a WAL there is no writer.
            let log = PathBuf::from(format!("{}-wal", path.display()));
            if e.sqlite_error_code() != Some(rusqlite::ErrorCode::CannotOpen)
                || log.exists()
                || !path.exists()
            {
                return Err(e);
            }
            let uri = format!("file:{}?immutable=1", escaped(&path));
            open(Path::new(&uri), flags | OpenFlags::SQLITE_OPEN_URI)
        });
        let db = db.map_err(|source| failed(&path, source))?;
        let mut store = Store {
            db,
            path,
            number: 0,
            has_chunks: false,
            sites: Vec::new(),
            controllers: Vec::new(),
            row_counts: RefCell::default(),
        };
        store.verify_schema()?;
        store.verify_names()?;
        store.number = store.read_id().map_err(|e| store.failed(e))?;
        Ok(store)
    }

    fn prepare(&self) -> rusqlite::Result<()> {
        self.db.busy_timeout(Duration::from_secs(5))?;
        self.db.pragma_update(None, "journal_mode", "wal")?;
        // A power failure may lose the last records, but not corrupt the database: that is what the
        // WAL is for.
        self.db.pragma_update(None, "synchronous", "normal")?;
        // Two megabytes of cache, and a WAL that is truncated after it grew.
        self.db.pragma_update(None, "cache_size", -2048)?;
        self.db.pragma_update(None, "temp_store", "memory")?;
        self.db.pragma_update(None, "journal_size_limit", 4 << 20)?;
        let empty: bool = self.db.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |r| r.get(0))?;
        if empty {
            self.db.execute_batch(&format!(
                "BEGIN; PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {SCHEMA}; {TABLES} \
                    {CHUNK_TABLES} COMMIT;"
            ))?;
        }
        Ok(())
    }

    /// Assigns a random id that distinguishes this store from any predecessor, because row ids
    /// restart.
    fn assign_id(&self) -> rusqlite::Result<()> {
        let number = "INSERT OR IGNORE INTO about VALUES ('store', abs(random() >> 1))";
        self.db.execute(number, []).map(drop)
    }

    fn read_id(&self) -> rusqlite::Result<u64> {
        self.about("store").map(|n| n.and_then(|n| n.parse().ok()).unwrap_or_default())
    }

    fn about(&self, name: &str) -> rusqlite::Result<Option<String>> {
        self.db.query_row("SELECT value FROM about WHERE name = ?", [name], |r| r.get(0)).optional()
    }

    /// Returns a number greater than all before and at least `least`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn next_epoch(&mut self, least: u64) -> Result<u64, StoreError> {
        let next = || -> rusqlite::Result<u64> {
            let last = self.about("epoch")?.and_then(|n| n.parse::<u64>().ok());
            let next = last.map_or(least, |last| least.max(last.saturating_add(1)));
            self.db.execute("INSERT OR REPLACE INTO about VALUES ('epoch', ?)", [next.to_string()])?;
            Ok(next)
        };
        next().map_err(|e| self.failed(e))
    }

    /// Stores the mesh's period for [`History`].
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn set_period(&mut self, period: Span) -> Result<(), StoreError> {
        self.db
            .execute("INSERT OR REPLACE INTO about VALUES ('period_ns', ?)", [period.as_nanos().to_string()])
            .map(drop)
            .map_err(|e| self.failed(e))
    }

    /// The stored period, by default a minute.
    fn period(&self) -> rusqlite::Result<Span> {
        let period = self.about("period_ns")?.and_then(|n| n.parse().ok());
        Ok(Span::from_nanos(period.unwrap_or(60_000_000_000)))
    }

    /// Deletes names without records if `wanted` would not fit otherwise.
    fn make_room_for_names(&self, table: &str, wanted: &[&str]) -> Result<(), StoreError> {
        let needed = || -> rusqlite::Result<usize> {
            let mut exists = self.db.prepare(&format!("SELECT count(*) FROM {table} WHERE name = ?"))?;
            let mut needed: i64 =
                self.db.query_row(&format!("SELECT count(*) FROM {table}"), [], |r| r.get(0))?;
            for name in wanted {
                needed += i64::from(exists.query_row([name], |r| r.get::<_, i64>(0))? == 0);
            }
            Ok(needed.max(0) as usize)
        };
        let room = |needed: rusqlite::Result<usize>| {
            needed.map(|needed| needed <= MAX_NAMES).map_err(|e| self.failed(e))
        };
        if room(needed())? {
            return Ok(());
        }
        let used = match table {
            "site" => {
                "SELECT sender FROM transfer UNION SELECT receiver FROM transfer UNION \
                    SELECT sender FROM minute UNION SELECT receiver FROM minute UNION \
                    SELECT sender FROM route UNION SELECT receiver FROM route UNION \
                    SELECT sender FROM chunk UNION SELECT receiver FROM chunk UNION \
                    SELECT site FROM pulled"
            }
            _ => "SELECT controller FROM transfer",
        };
        self.db
            .execute(&format!("DELETE FROM {table} WHERE id NOT IN ({used})"), [])
            .map_err(|e| self.failed(e))?;
        if room(needed())? { Ok(()) } else { Err(StoreError::NoRoomForNames(self.path.clone())) }
    }

    fn named(&self, table: &str, name: &str) -> rusqlite::Result<i64> {
        self.db
            .prepare_cached(&format!("INSERT OR IGNORE INTO {table}(name) VALUES (?)"))?
            .execute([name])?;
        self.db
            .prepare_cached(&format!("SELECT id FROM {table} WHERE name = ?"))?
            .query_row([name], |r| r.get(0))
    }

    fn failed(&self, source: rusqlite::Error) -> StoreError {
        failed(&self.path, source)
    }

    /// The database file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Stores a row whose site and controller ids refer to the names the store was opened with.
    ///
    /// # Errors
    /// If it cannot be written; the store is unchanged.
    pub fn add(&mut self, row: &Row) -> Result<(), StoreError> {
        insert(&self.db, row, &self.sites, &self.controllers).map_err(|e| self.failed(e))
    }

    /// The earliest time within `time` from which on each table has at most `most` rows.
    fn bounded(&self, time: &Range<i64>, most: u32) -> rusqlite::Result<i64> {
        let mut start = time.start;
        for table in Table::ALL {
            let query = format!(
                "SELECT at_ms FROM {} WHERE at_ms >= ? AND at_ms < ? ORDER BY at_ms DESC LIMIT 1 OFFSET ?",
                table_name(table)
            );
            let excess = self.db.query_row(&query, params![start, time.end, most], |r| r.get::<_, i64>(0));
            if let Some(at) = excess.optional()? {
                start = at.saturating_add(1);
            }
        }
        Ok(start)
    }

    /// All records of a time range, in milliseconds since 1970.
    ///
    /// # Errors
    /// If the database fails.
    pub fn history(&self, time: Range<i64>) -> Result<History, StoreError> {
        let read = || {
            // One transaction for a consistent snapshot.
            let _snapshot = self.db.unchecked_transaction()?;
            self.read_history(time, i64::MAX)
        };
        read().map_err(|e| self.failed(e))
    }

    /// The records from the earliest time within `time` from which on each table has at most `most`,
    /// and that time: a part that can be analysed with bounded time and memory.
    ///
    /// # Errors
    /// If the database fails.
    pub fn newest_history(&self, time: &Range<i64>, most: u32) -> Result<(History, i64), StoreError> {
        let read = || {
            let _snapshot = self.db.unchecked_transaction()?;
            let from = self.bounded(time, most)?;
            Ok((self.read_history(from..time.end, most.into())?, from))
        };
        read().map_err(|e| self.failed(e))
    }

    fn read_history(&self, time: Range<i64>, most: i64) -> rusqlite::Result<History> {
        let ((sites, site_ids), (controllers, controller_ids)) =
            (names(&self.db, "site")?, names(&self.db, "controller")?);
        let mut history = History { sites, controllers, period: self.period()?, ..History::default() };
        for table in Table::ALL {
            let mut statement = self.db.prepare(&select(table, IN_TIME_RANGE))?;
            let mut found = statement.query(params![time.start, time.end, most.min(self.max_rows()?)])?;
            while let Some(row) = found.next()? {
                match read_row(table, row, &site_ids, &controller_ids)? {
                    Row::Transfer(transfer) => history.transfers.push(transfer),
                    Row::Minute(minute) => history.minutes.push(minute),
                    Row::Route(route) => history.routes.push(route),
                }
            }
        }
        Ok(history)
    }

    /// More rows than the file has room for. Pages of a crafted file may refer to each other in
    /// circles, and have rows without end.
    fn max_rows(&self) -> rusqlite::Result<i64> {
        const MIN_ROW_BYTES: i64 = 8;
        let ask = |name| self.db.pragma_query_value(None, name, |r| r.get::<_, i64>(0));
        Ok(ask("page_count")?.saturating_mul(ask("page_size")?) / MIN_ROW_BYTES)
    }

    /// The number of rows of the largest table, at most: ids may have gaps.
    ///
    /// # Errors
    /// If the database fails.
    pub fn largest_table_rows(&self) -> Result<u64, StoreError> {
        let count = |table| {
            let query = format!("SELECT max(id) - min(id) + 1 FROM {}", table_name(table));
            self.db.query_row(&query, [], |r| r.get::<_, Option<i64>>(0))
        };
        let counts = Table::ALL.map(count).into_iter().collect::<rusqlite::Result<Vec<_>>>();
        let largest = counts.map_err(|e| self.failed(e))?.into_iter().flatten().max();
        Ok(largest.unwrap_or(0).max(0) as u64)
    }

    /// Deletes records older than `at_ms`, at most `most` of each table, so that a wrong clock
    /// cannot delete everything at once.
    ///
    /// # Errors
    /// If the database fails.
    pub fn delete_older_than(&mut self, at_ms: i64, most: u32) -> Result<usize, StoreError> {
        let delete = || -> rusqlite::Result<usize> {
            let mut deleted = 0;
            for table in Table::ALL {
                let name = table_name(table);
                let mut statement = self.db.prepare_cached(&format!(
                    "DELETE FROM {name} WHERE id IN (SELECT id FROM {name} WHERE at_ms < ? ORDER BY \
                        at_ms LIMIT ?) RETURNING sender"
                ))?;
                // On a full disk the statement fails at its end, and nothing is deleted.
                let senders: Vec<i64> = statement
                    .query_map(params![at_ms, most], |r| r.get(0))?
                    .collect::<rusqlite::Result<_>>()?;
                deleted += senders.len();
                let mut counts = self.row_counts.borrow_mut();
                if let Some(by_site) = counts.get_mut(&table) {
                    for sender in senders {
                        by_site.entry(sender).and_modify(|count| *count = count.saturating_sub(1));
                    }
                }
            }
            self.delete_chunks(at_ms, most / 5)?;
            Ok(deleted)
        };
        delete().map_err(|e| self.failed(e))
    }

    /// SQLite's integrity check: `None` if the file is intact.
    ///
    /// # Errors
    /// If the check cannot run.
    pub fn integrity_error(&self) -> Result<Option<String>, StoreError> {
        let result = self.db.pragma_query_value(None, "integrity_check", |r| r.get::<_, String>(0));
        result.map(|result| (result != "ok").then_some(result)).map_err(|e| self.failed(e))
    }
}

fn failed(path: &Path, source: rusqlite::Error) -> StoreError {
    use rusqlite::ErrorCode::NotADatabase;
    let path = path.to_owned();
    match source.sqlite_error_code() {
        _ if full(&source) => StoreError::Full(path),
        Some(NotADatabase) => StoreError::NotAStore { path, reason: "not a database".to_owned() },
        _ => StoreError::Database { path, source },
    }
}

fn escaped(path: &Path) -> String {
    let mut uri = String::new();
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            b'?' | b'#' | b'%' | 0x80.. => drop(write!(uri, "%{byte:02x}")),
            other => uri.push(char::from(other)),
        }
    }
    uri
}

/// The names in a table, and their indices by row id.
fn names(db: &Connection, table: &str) -> rusqlite::Result<(Vec<String>, HashMap<i64, u16>)> {
    let mut statement = db.prepare(&format!("SELECT id, name FROM {table} ORDER BY id"))?;
    let mut found = statement.query([])?;
    let (mut names, mut places) = (Vec::new(), HashMap::new());
    while let Some(row) = found.next()? {
        let id = row.get(0)?;
        let place = u16::try_from(names.len());
        places.insert(id, place.map_err(|_| rusqlite::Error::IntegralValueOutOfRange(0, id))?);
        names.push(row.get(1)?);
    }
    Ok((names, places))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::tests::rows;
    use crate::record::{Pair, Transfer};

    pub(super) fn store(directory: &Path) -> Store {
        Store::open(directory, ["lab", "sea"], ["cubic", "bbr"]).unwrap()
    }

    pub(super) fn filled(directory: &Path) -> Store {
        let mut store = store(directory);
        store.set_period(Span::from_secs(30)).unwrap();
        rows().iter().for_each(|row| store.add(row).unwrap());
        store
    }

    #[test]
    fn records_round_trip() {
        let directory = tempfile::tempdir().unwrap();
        let written = filled(directory.path());
        let store = Store::read(directory.path()).unwrap();
        let history = store.history(i64::MIN..i64::MAX).unwrap();
        assert_eq!(
            (history.period, history.sites.as_slice()),
            (Span::from_secs(30), &["lab".to_owned(), "sea".into()][..])
        );
        let mut read: Vec<Row> = history.transfers.into_iter().map(Row::Transfer).collect();
        read.extend(history.minutes.into_iter().map(Row::Minute));
        read.extend(history.routes.into_iter().map(Row::Route));
        assert_eq!(read, rows());
        assert_eq!(store.history(60_000..120_000).unwrap().transfers.len(), 1);
        let all = i64::MIN..i64::MAX;
        assert_eq!(store.newest_history(&all, 100).unwrap().1, i64::MIN);
        for most in 0..4 {
            let (part, from) = store.newest_history(&all, most).unwrap();
            let rows = [part.transfers.len(), part.minutes.len(), part.routes.len()];
            assert!(rows.iter().all(|n| *n <= most as usize), "{rows:?}");
            assert!(most < 2 || !part.transfers.is_empty());
            assert!(part.transfers.iter().all(|transfer| transfer.at_ms >= from));
        }
        let transfers = rows().iter().filter(|row| matches!(row, Row::Transfer(_))).count();
        assert_eq!(store.largest_table_rows().unwrap(), transfers as u64);
        assert_eq!(written.integrity_error().unwrap(), None);
        // Site ids are stable when the mesh file changes their order.
        drop(written);
        let mut other = Store::open(directory.path(), ["new", "sea", "lab"], ["bbr"]).unwrap();
        let Row::Transfer(transfer) = &rows()[0] else { panic!() };
        let swapped =
            Transfer { pair: Pair { from: 1, to: 2 }, controller: 0, period: 99, ..transfer.clone() };
        other.add(&Row::Transfer(swapped)).unwrap();
        let last = other.history(i64::MIN..i64::MAX).unwrap().transfers.into_iter().find(|t| t.period == 99);
        assert_eq!(last.map(|t| (t.pair, t.controller)), Some((Pair { from: 1, to: 0 }, 1)));
    }

    #[test]
    fn paths_are_escaped_in_uris() {
        assert_eq!(escaped(Path::new("/mesh?/50%/\u{e9}")), "/mesh%3f/50%25/%c3%a9");
    }

    #[test]
    fn a_store_full_of_names_without_records_opens_with_the_sites_of_the_mesh() {
        let directory = tempfile::tempdir().unwrap();
        drop(filled(directory.path()));
        let poison = |upto: u32| {
            let db = Connection::open(directory.path().join(FILE)).unwrap();
            for i in 0..upto {
                db.execute("INSERT OR IGNORE INTO site(name) VALUES (?)", [format!("s{i}")]).unwrap();
                db.execute("INSERT OR IGNORE INTO controller(name) VALUES (?)", [format!("c{i}")]).unwrap();
            }
        };
        for names in [1022, 1500] {
            poison(names);
            let opened = Store::open(directory.path(), ["lab", "sea", "new"], ["cubic", "bbr", "reno"]);
            let (_, sites, controllers) = opened.unwrap().names().unwrap();
            assert!(sites.contains(&"new".to_owned()) && controllers.contains(&"reno".to_owned()));
            Store::read(directory.path()).unwrap().history(i64::MIN..i64::MAX).unwrap();
        }
        // Names of records are never deleted.
        poison(1022);
        let db = Connection::open(directory.path().join(FILE)).unwrap();
        db.execute("INSERT INTO route SELECT NULL, 0, id, id, '*' FROM site", []).unwrap();
        let opened = Store::open(directory.path(), ["lab", "sea", "sky", "new2"], ["cubic"]);
        assert!(matches!(opened, Err(StoreError::NoRoomForNames(_))), "{opened:?}");
    }

    #[test]
    fn many_routes_of_one_direction_do_not_displace_those_of_others() {
        let directory = tempfile::tempdir().unwrap();
        let store = store(directory.path());
        let db = Connection::open(directory.path().join(FILE)).unwrap();
        // One old route back, and then more there than are read.
        db.execute("INSERT INTO route VALUES (NULL, 1000, 2, 1, '*')", []).unwrap();
        db.execute(
            "INSERT INTO route WITH RECURSIVE n(i) AS \
               (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < 30000) \
             SELECT NULL, i * 1000, 1, 2, '' FROM n",
            [],
        )
        .unwrap();
        let routes = store.load_compact(i64::MIN..i64::MAX, u64::MAX).unwrap().head.routes;
        assert_eq!(routes.len(), 20_000);
        assert_eq!((routes[0].at_ms, routes[0].pair), (1000, Pair { from: 1, to: 0 }));
        // The others are the newest, by time.
        let times: Vec<i64> = routes[1..].iter().map(|route| route.at_ms / 1000).collect();
        assert_eq!(times, (10_002..=30_000).collect::<Vec<_>>());
    }

    #[test]
    fn old_records_are_deleted_in_pieces_and_ids_are_never_reused() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = filled(directory.path());
        let before = store.rows_after(Table::Transfers, "sea", 0, 1 << 20).unwrap();
        assert_eq!(store.delete_older_than(i64::MAX, 2).unwrap(), 5);
        assert_eq!(store.rows_after(Table::Transfers, "sea", 0, 1 << 20).unwrap(), before[2..]);
        while store.delete_older_than(i64::MAX, 100).unwrap() > 0 {}
        store.add(&rows()[0]).unwrap();
        let last = before.last().unwrap().0;
        assert_eq!(store.rows_after(Table::Transfers, "sea", last, 1 << 20).unwrap()[0].0, last + 1);
        let first = store.next_epoch(1000).unwrap();
        assert_eq!(
            (first, store.next_epoch(5).unwrap(), store.next_epoch(2000).unwrap()),
            (1000, 1001, 2000)
        );
    }
}
