//! Where records lie: an SQLite database in a directory of a site's own, written by one node, read by whoever may read its files.
//!
//! In write-ahead mode with each record a transaction of its own, an end at any moment leaves a whole database with everything up
//! to the last record. What cannot be written, because the disk is full, is an error; what was written before stays.

use crate::file::is_plain;
use crate::message::{MOST_HOPS, Row, TROUBLES, Table, number_of};
use crate::record::{History, Measured, Minute, Outcome, Pair, Route, RttBand, Transfer};
use fullpipe_units::{Rate, Span};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The name of the database in its directory.
pub const FILE: &str = "mesh.db";
/// The version of its tables, in `PRAGMA user_version`.
const SCHEMA: i64 = 1;
/// Most names of sites, and of controllers: 64 are in a mesh at a time, and those that have left it stay named.
const MOST_NAMES: usize = 1024;
/// In `PRAGMA application_id`: "fpme".
const APPLICATION: i64 = 0x6670_6d65;

const TABLES: &str = "
CREATE TABLE about(name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE site(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE controller(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE transfer(
  id INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER NOT NULL, sender INTEGER NOT NULL, receiver INTEGER NOT NULL,
  period INTEGER NOT NULL, controller INTEGER NOT NULL, trouble INTEGER,
  bytes INTEGER, duration_ns INTEGER, delivery_rate INTEGER, rtt_ns INTEGER, min_rtt_ns INTEGER, segments INTEGER,
  retransmitted INTEGER, receive_window_limited REAL, send_buffer_limited REAL, cpu_ns INTEGER) STRICT;
CREATE INDEX transfer_at ON transfer(at_ms);
CREATE TABLE minute(
  id INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER NOT NULL, sender INTEGER NOT NULL, receiver INTEGER NOT NULL,
  sent INTEGER NOT NULL, arrived INTEGER NOT NULL, answered INTEGER NOT NULL,
  rtt_min_ns INTEGER, rtt_p50_ns INTEGER, rtt_p95_ns INTEGER, rtt_max_ns INTEGER) STRICT;
CREATE INDEX minute_at ON minute(at_ms);
CREATE TABLE route(
  id INTEGER PRIMARY KEY AUTOINCREMENT, at_ms INTEGER NOT NULL, sender INTEGER NOT NULL, receiver INTEGER NOT NULL,
  hops TEXT NOT NULL) STRICT;
CREATE INDEX route_at ON route(at_ms);
CREATE TABLE pulled(site INTEGER NOT NULL, store INTEGER NOT NULL, tab INTEGER NOT NULL, id INTEGER NOT NULL,
  PRIMARY KEY(site, store, tab)) STRICT;
";

/// A store.
#[derive(Debug)]
pub struct Store {
    db: Connection,
    path: PathBuf,
    number: u64,
    sites: Vec<i64>,
    controllers: Vec<i64>,
}

/// Why a store does not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no room on its disk.
    #[error("{}: the disk is full", .0.display())]
    Full(PathBuf),
    /// It is none, or a later version's.
    #[error("{}: {reason}", path.display())]
    NotAStore {
        /// The file.
        path: PathBuf,
        /// What it is.
        reason: String,
    },
    /// A site names more sites or controllers than a store takes.
    #[error(
        "{site} names more sites or controllers than a store takes ({}): its records are not taken",
        MOST_NAMES
    )]
    Names {
        /// Which.
        site: String,
    },
    /// What SQLite says.
    #[error("{}: {source}", path.display())]
    Database {
        /// The file.
        path: PathBuf,
        /// What.
        source: rusqlite::Error,
    },
}

/// The file of a store that is given as its directory or as the file.
pub fn file(path: &Path) -> PathBuf {
    if path.is_dir() { path.join(FILE) } else { path.to_owned() }
}

fn full(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DiskFull, SystemIoFailure};
    // A file that is mapped, as the index of the log is, cannot grow on a full disk either: that is an I/O error.
    matches!(error.sqlite_error_code(), Some(DiskFull))
        || (error.sqlite_error_code() == Some(SystemIoFailure)
            && error.sqlite_error().is_some_and(|e| e.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE))
}

impl Store {
    /// Opens the store in `directory`, which is there, and makes it if there is none.
    ///
    /// # Errors
    /// When the file is something else, or cannot be written.
    pub fn open<'a>(
        directory: &Path,
        sites: impl IntoIterator<Item = &'a str>,
        controllers: impl IntoIterator<Item = &'a str>,
    ) -> Result<Store, StoreError> {
        let path = directory.join(FILE);
        regular(&path)?;
        let db = Connection::open(&path).map_err(|source| failed(&path, source))?;
        guard(&db).map_err(|source| failed(&path, source))?;
        let mut store = Store { db, path, number: 0, sites: Vec::new(), controllers: Vec::new() };
        store.prepare().map_err(|e| store.failed(e))?;
        store.known()?;
        store.be_numbered().map_err(|e| store.failed(e))?;
        store.number = store.own_number().map_err(|e| store.failed(e))?;
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

    /// Opens a store to be read, while its node runs or not. `path` is its directory or its file.
    ///
    /// # Errors
    /// When there is none, or it cannot be read.
    pub fn read(path: &Path) -> Result<Store, StoreError> {
        let path = file(path);
        regular(&path)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let open = |path: &Path, flags| {
            let db = Connection::open_with_flags(path, flags)?;
            db.busy_timeout(Duration::from_secs(5))?;
            guard(&db)?;
            // Opening reads nothing yet.
            db.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
            Ok(db)
        };
        let db = open(&path, flags).or_else(|e: rusqlite::Error| {
            // Who may not write beside it cannot share the log with its writer; where no log is, nobody writes.
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
        let mut store = Store { db, path, number: 0, sites: Vec::new(), controllers: Vec::new() };
        store.known()?;
        store.number = store.own_number().map_err(|e| store.failed(e))?;
        Ok(store)
    }

    fn prepare(&self) -> rusqlite::Result<()> {
        self.db.busy_timeout(Duration::from_secs(5))?;
        self.db.pragma_update(None, "journal_mode", "wal")?;
        // A power cut may take the last records, never the whole: that is what the log is for.
        self.db.pragma_update(None, "synchronous", "normal")?;
        // Two megabytes, and a log that is cut back once it has been larger.
        self.db.pragma_update(None, "cache_size", -2048)?;
        self.db.pragma_update(None, "temp_store", "memory")?;
        self.db.pragma_update(None, "journal_size_limit", 4 << 20)?;
        let empty: bool = self.db.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |r| r.get(0))?;
        if empty {
            self.db.execute_batch(&format!(
                "BEGIN; PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {SCHEMA}; {TABLES} COMMIT;"
            ))?;
        }
        Ok(())
    }

    /// Whether it is a store, of a version that is known.
    fn known(&self) -> Result<(), StoreError> {
        let ask =
            |name| self.db.pragma_query_value(None, name, |r| r.get::<_, i64>(0)).map_err(|e| self.failed(e));
        let reason = match (ask("application_id")?, ask("user_version")?) {
            (APPLICATION, SCHEMA) => match self.odd().map_err(|e| self.failed(e))? {
                None => return Ok(()),
                Some(reason) => reason,
            },
            (APPLICATION, version) => {
                format!("a store of version {version}; this program knows {SCHEMA}: use the one that made it")
            }
            _ => "a database, but not of a mesh".to_owned(),
        };
        Err(StoreError::NotAStore { path: self.path.clone(), reason })
    }

    /// What is in it that no node puts there: a file that someone else made may have views without an end in place of tables, more names
    /// than have numbers, and names that terminals and tables take for something else.
    fn odd(&self) -> rusqlite::Result<Option<String>> {
        let found = definitions(&self.db)?;
        let made = Connection::open_in_memory()?;
        made.execute_batch(TABLES)?;
        let made = definitions(&made)?;
        if let Some([_, name, _]) = found.iter().find(|one| !made.contains(one)) {
            let name: String = name.chars().take(40).collect();
            return Ok(Some(format!("not a store that a node made: it has {name:?} in a form of its own")));
        }
        if let Some([_, name, _]) = made.iter().find(|one| !found.contains(one)) {
            return Ok(Some(format!("not a store that a node made: it has no {name}")));
        }
        for table in ["site", "controller"] {
            let query = format!("SELECT substr(name, 1, 33) FROM {table} LIMIT {}", MOST_NAMES + 1);
            let mut statement = self.db.prepare(&query)?;
            let names = statement.query_map([], |r| r.get(0))?.collect::<rusqlite::Result<Vec<String>>>()?;
            if names.len() > MOST_NAMES {
                return Ok(Some(format!("more than {MOST_NAMES} names of a {table}")));
            }
            if let Some(name) = names.iter().find(|name| !is_plain(name)) {
                return Ok(Some(format!("{name:?} is no name of a {table}")));
            }
        }
        Ok(None)
    }

    /// Gives it what tells it from any other, so that ids in it are not taken for those of one that was before it.
    fn be_numbered(&self) -> rusqlite::Result<()> {
        let number = "INSERT OR IGNORE INTO about VALUES ('store', abs(random() >> 1))";
        self.db.execute(number, []).map(drop)
    }

    fn own_number(&self) -> rusqlite::Result<u64> {
        self.about("store").map(|n| n.and_then(|n| n.parse().ok()).unwrap_or_default())
    }

    fn about(&self, name: &str) -> rusqlite::Result<Option<String>> {
        self.db.query_row("SELECT value FROM about WHERE name = ?", [name], |r| r.get(0)).optional()
    }

    /// A number that is greater than all that it gave before, and no less than `least`.
    ///
    /// # Errors
    /// When it cannot be written down.
    pub fn next_epoch(&mut self, least: u64) -> Result<u64, StoreError> {
        let next = || -> rusqlite::Result<u64> {
            let last = self.about("epoch")?.and_then(|n| n.parse::<u64>().ok());
            let next = last.map_or(least, |last| least.max(last.saturating_add(1)));
            self.db.execute("INSERT OR REPLACE INTO about VALUES ('epoch', ?)", [next.to_string()])?;
            Ok(next)
        };
        next().map_err(|e| self.failed(e))
    }

    /// Keeps the mesh's period, which a [`History`] tells.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn set_period(&mut self, period: Span) -> Result<(), StoreError> {
        self.db
            .execute("INSERT OR REPLACE INTO about VALUES ('period_ns', ?)", [period.as_nanos().to_string()])
            .map(drop)
            .map_err(|e| self.failed(e))
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

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps a record, whose sites and controllers are counted as the store was opened with.
    ///
    /// # Errors
    /// When it cannot be written; the store is as it was.
    pub fn add(&mut self, row: &Row) -> Result<(), StoreError> {
        insert(&self.db, row, &self.sites, &self.controllers).map_err(|e| self.failed(e))
    }

    /// Takes records of another store, with the id of the last that it gave, so that the next ones are asked for after it; all or
    /// nothing.
    ///
    /// # Errors
    /// When they name sites that are not among `from.sites`, or cannot be written.
    pub fn pull<'a>(
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
            if self.db.query_row(most, [], |r| r.get::<_, i64>(0))? > MOST_NAMES as i64 {
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

    /// The id of the last record that was pulled from a store.
    ///
    /// # Errors
    /// The database's.
    pub fn pulled(&self, site: &str, store: u64, table: Table) -> Result<u64, StoreError> {
        let id = self.db.query_row(
            "SELECT pulled.id FROM pulled JOIN site ON site.id = pulled.site WHERE site.name = ? AND store = ? AND tab = ?",
            params![site, store as i64, table as i64],
            |r| r.get::<_, i64>(0),
        );
        id.optional().map(|id| id.unwrap_or(0) as u64).map_err(|e| self.failed(e))
    }

    /// Whose records there are.
    ///
    /// # Errors
    /// The database's.
    pub fn names(&self) -> Result<(u64, Vec<String>, Vec<String>), StoreError> {
        let names = || Ok((self.number, names(&self.db, "site")?.0, names(&self.db, "controller")?.0));
        names().map_err(|e| self.failed(e))
    }

    /// Records of the sender `site` after the one with the id `after`, in order, as many as fit into `bytes` when written. Their
    /// sites and controllers are counted as [`names`](Store::names) has them.
    ///
    /// # Errors
    /// The database's.
    pub fn after(
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
                let mut written = crate::wire::Writer::default();
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

    /// All that is known of a time, in milliseconds since 1970.
    ///
    /// # Errors
    /// The database's.
    pub fn history(&self, time: Range<i64>) -> Result<History, StoreError> {
        let read = || -> rusqlite::Result<History> {
            // One transaction: what is written meanwhile is not half seen.
            let _transaction = self.db.unchecked_transaction()?;
            let ((sites, site_ids), (controllers, controller_ids)) =
                (names(&self.db, "site")?, names(&self.db, "controller")?);
            let period = self.about("period_ns")?.and_then(|n| n.parse().ok()).unwrap_or(60_000_000_000);
            let period = Span::from_nanos(period);
            let mut history = History { sites, controllers, period, ..History::default() };
            for table in Table::ALL {
                let condition = "at_ms >= ?1 AND at_ms < ?2 ORDER BY at_ms, id";
                let mut statement = self.db.prepare(&select(table, condition))?;
                let mut found = statement.query(params![time.start, time.end])?;
                while let Some(row) = found.next()? {
                    match read_row(table, row, &site_ids, &controller_ids)? {
                        Row::Transfer(transfer) => history.transfers.push(transfer),
                        Row::Minute(minute) => history.minutes.push(minute),
                        Row::Route(route) => history.routes.push(route),
                    }
                }
            }
            Ok(history)
        };
        read().map_err(|e| self.failed(e))
    }

    /// Forgets records from before `at_ms`, at most `most` of each kind: whatever the clock says, a day's work is not undone at once.
    ///
    /// # Errors
    /// The database's.
    pub fn forget(&mut self, at_ms: i64, most: u32) -> Result<usize, StoreError> {
        let forget = || -> rusqlite::Result<usize> {
            let mut gone = 0;
            for table in ["transfer", "minute", "route"] {
                gone += self.db.execute(
                    &format!(
                        "DELETE FROM {table} WHERE id IN (SELECT id FROM {table} WHERE at_ms < ? ORDER BY at_ms LIMIT ?)"
                    ),
                    params![at_ms, most],
                )?;
            }
            Ok(gone)
        };
        forget().map_err(|e| self.failed(e))
    }

    /// What SQLite finds wrong with the file: nothing, if it is whole.
    ///
    /// # Errors
    /// When it cannot even look.
    pub fn damage(&self) -> Result<Option<String>, StoreError> {
        let said = self.db.pragma_query_value(None, "integrity_check", |r| r.get::<_, String>(0));
        said.map(|said| (said != "ok").then_some(said)).map_err(|e| self.failed(e))
    }
}

/// Another site's store, as that names what is in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// Whose it is.
    pub site: String,
    /// Its number.
    pub store: u64,
    /// Its sites.
    pub sites: Vec<String>,
    /// Its controllers.
    pub controllers: Vec<String>,
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

/// To open a named pipe is to wait for its writer; what is not there is for the database to tell of.
fn regular(path: &Path) -> Result<(), StoreError> {
    if path.metadata().is_ok_and(|about| !about.is_file()) {
        let reason = "not a regular file".to_owned();
        return Err(StoreError::NotAStore { path: path.to_owned(), reason });
    }
    Ok(())
}

/// Nothing that a file says is run.
fn guard(db: &Connection) -> rusqlite::Result<()> {
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

/// What there is in a database besides SQLite's own: its kind, its name, and how it was made.
fn definitions(db: &Connection) -> rusqlite::Result<Vec<[String; 3]>> {
    // One more than a store has, and a few.
    let query = "SELECT type, name, coalesce(sql, '') FROM sqlite_schema WHERE substr(name, 1, 7) <> 'sqlite_' LIMIT 32";
    let mut statement = db.prepare(query)?;
    let all = statement.query_map([], |r| {
        let sql: String = r.get(2)?;
        Ok([r.get(0)?, r.get(1)?, sql.split_whitespace().collect::<Vec<_>>().join(" ")])
    })?;
    all.collect()
}

fn escaped(path: &Path) -> String {
    let mut uri = String::new();
    for byte in path.to_string_lossy().bytes() {
        match byte {
            b'?' | b'#' | b'%' => drop(write!(uri, "%{byte:02x}")),
            other => uri.push(char::from(other)),
        }
    }
    uri
}

/// The names in a table, and by the table's ids their places among them.
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

fn select(table: Table, condition: &str) -> String {
    let columns = match table {
        Table::Transfers => {
            "period, controller, trouble, bytes, duration_ns, delivery_rate, rtt_ns, min_rtt_ns, segments, retransmitted,
             receive_window_limited, send_buffer_limited, cpu_ns FROM transfer"
        }
        Table::Minutes => {
            "sent, arrived, answered, rtt_min_ns, rtt_p50_ns, rtt_p95_ns, rtt_max_ns FROM minute"
        }
        Table::Routes => "hops FROM route",
    };
    format!("SELECT id, at_ms, sender, receiver, {columns} WHERE {condition}")
}

fn insert(db: &Connection, row: &Row, sites: &[i64], controllers: &[i64]) -> rusqlite::Result<()> {
    let unknown = || rusqlite::Error::InvalidParameterName("a site or controller that is not named".into());
    let (at_ms, pair) = row.pair();
    let site = |id: u16| sites.get(usize::from(id)).copied().ok_or_else(unknown);
    let (sender, receiver) = (site(pair.from)?, site(pair.to)?);
    let ns = |span: Span| span.as_nanos() as i64;
    match row {
        Row::Transfer(t) => {
            let controller = controllers.get(usize::from(t.controller)).ok_or_else(unknown)?;
            let (trouble, m) = match &t.outcome {
                Outcome::Done(measured) => (None, Some(measured)),
                Outcome::Failed(trouble) => (Some(number_of(*trouble)), None),
            };
            db.prepare_cached(
                "INSERT INTO transfer VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            )?
            .execute(params![
                at_ms,
                sender,
                receiver,
                t.period,
                controller,
                trouble,
                m.map(|m| m.bytes as i64),
                m.map(|m| ns(m.duration)),
                m.and_then(|m| m.delivery_rate).map(|rate| rate.as_bytes_per_sec() as i64),
                m.map(|m| ns(m.rtt)),
                m.map(|m| ns(m.min_rtt)),
                m.map(|m| m.segments),
                m.map(|m| m.retransmitted),
                m.map(|m| m.receive_window_limited),
                m.map(|m| m.send_buffer_limited),
                m.map(|m| ns(m.cpu)),
            ])
        }
        Row::Minute(m) => db
            .prepare_cached("INSERT INTO minute VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")?
            .execute(params![
                at_ms,
                sender,
                receiver,
                m.sent,
                m.arrived,
                m.answered,
                m.rtt.map(|b| ns(b.min)),
                m.rtt.map(|b| ns(b.p50)),
                m.rtt.map(|b| ns(b.p95)),
                m.rtt.map(|b| ns(b.max)),
            ]),
        Row::Route(route) => {
            let hops: Vec<String> =
                route.hops.iter().map(|hop| hop.map_or("*".to_owned(), |ip| ip.to_string())).collect();
            db.prepare_cached("INSERT INTO route VALUES (NULL, ?, ?, ?, ?)")?.execute(params![
                at_ms,
                sender,
                receiver,
                hops.join(" ")
            ])
        }
    }
    .map(drop)
}

fn read_row(
    table: Table,
    row: &rusqlite::Row<'_>,
    sites: &HashMap<i64, u16>,
    controllers: &HashMap<i64, u16>,
) -> rusqlite::Result<Row> {
    let place = |places: &HashMap<i64, u16>, column: usize| {
        let id: i64 = row.get(column)?;
        places.get(&id).copied().ok_or(rusqlite::Error::IntegralValueOutOfRange(column, id))
    };
    let span = |column: usize| row.get::<_, i64>(column).map(|ns| Span::from_nanos(ns.max(0) as u64));
    let at_ms = row.get(1)?;
    let pair = Pair { from: place(sites, 2)?, to: place(sites, 3)? };
    Ok(match table {
        Table::Transfers => {
            let outcome = match row.get::<_, Option<i64>>(6)? {
                Some(number) => {
                    let trouble = usize::try_from(number).ok().and_then(|n| TROUBLES.get(n));
                    Outcome::Failed(*trouble.ok_or(rusqlite::Error::IntegralValueOutOfRange(6, number))?)
                }
                None => Outcome::Done(Box::new(Measured {
                    bytes: row.get::<_, i64>(7)?.max(0) as u64,
                    duration: span(8)?,
                    delivery_rate: row
                        .get::<_, Option<i64>>(9)?
                        .map(|rate| Rate::from_bytes_per_sec(rate.max(0) as u64)),
                    rtt: span(10)?,
                    min_rtt: span(11)?,
                    segments: row.get(12)?,
                    retransmitted: row.get(13)?,
                    receive_window_limited: row.get(14)?,
                    send_buffer_limited: row.get(15)?,
                    cpu: span(16)?,
                })),
            };
            let (period, controller) = (row.get(4)?, place(controllers, 5)?);
            Row::Transfer(Transfer { at_ms, period, pair, controller, outcome })
        }
        Table::Minutes => {
            let rtt = match row.get::<_, Option<i64>>(7)? {
                None => None,
                Some(_) => Some(RttBand { min: span(7)?, p50: span(8)?, p95: span(9)?, max: span(10)? }),
            };
            let (sent, arrived, answered) = (row.get(4)?, row.get(5)?, row.get(6)?);
            Row::Minute(Minute { at_ms, pair, sent, arrived, answered, rtt })
        }
        Table::Routes => {
            let written: String = row.get(4)?;
            let hops: Vec<_> =
                written.split_whitespace().take(MOST_HOPS + 1).map(|hop| hop.parse().ok()).collect();
            if hops.len() > MOST_HOPS {
                return Err(rusqlite::Error::IntegralValueOutOfRange(4, hops.len() as i64));
            }
            Row::Route(Route { at_ms, pair, hops })
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::tests::rows;

    fn store(directory: &Path) -> Store {
        Store::open(directory, ["lab", "sea"], ["cubic", "bbr"]).unwrap()
    }

    fn filled(directory: &Path) -> Store {
        let mut store = store(directory);
        store.set_period(Span::from_secs(30)).unwrap();
        rows().iter().for_each(|row| store.add(row).unwrap());
        store
    }

    #[test]
    fn what_is_kept_is_read_as_it_was() {
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
        assert_eq!(written.damage().unwrap(), None);
        // Sites keep their numbers when the mesh file has them in another order.
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
    fn stores_are_pulled_together_and_go_on_where_they_were() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let from = filled(one.path());
        let mut to = Store::open(two.path(), ["sky", "sea"], ["reno"]).unwrap();
        let (store, sites, controllers) = from.names().unwrap();
        let source = Source { site: "sea".into(), store, sites, controllers };
        let mut asked = 0;
        for table in Table::ALL {
            loop {
                let after = to.pulled("sea", store, table).unwrap();
                let rows = from.after(table, "sea", after, 300).unwrap();
                if rows.is_empty() {
                    break;
                }
                let last = rows.last().unwrap().0;
                to.pull(&source, table, rows.iter().map(|(_, row)| row), last).unwrap();
                asked += 1;
            }
        }
        assert!(asked > 3, "in pieces: {asked}");
        let history = to.history(i64::MIN..i64::MAX).unwrap();
        assert_eq!(history.transfers.len() + history.minutes.len() + history.routes.len(), rows().len());
        assert!(history.transfers.iter().all(|t| history.name(t.pair) == "sea → lab"));
        assert_eq!(history.controllers[usize::from(history.transfers[0].controller)], "bbr");
        assert!(from.after(Table::Transfers, "lab", 0, 9999).unwrap().is_empty(), "lab sent nothing");
    }

    #[test]
    fn old_records_go_a_few_at_a_time_and_ids_never_come_again() {
        let directory = tempfile::tempdir().unwrap();
        let mut store = filled(directory.path());
        let before = store.after(Table::Transfers, "sea", 0, 1 << 20).unwrap();
        assert_eq!(store.forget(i64::MAX, 2).unwrap(), 5);
        assert_eq!(store.after(Table::Transfers, "sea", 0, 1 << 20).unwrap(), before[2..]);
        while store.forget(i64::MAX, 100).unwrap() > 0 {}
        store.add(&rows()[0]).unwrap();
        let last = before.last().unwrap().0;
        assert_eq!(store.after(Table::Transfers, "sea", last, 1 << 20).unwrap()[0].0, last + 1);
        let first = store.next_epoch(1000).unwrap();
        assert_eq!(
            (first, store.next_epoch(5).unwrap(), store.next_epoch(2000).unwrap()),
            (1000, 1001, 2000)
        );
    }

    #[test]
    fn what_is_no_store_is_said_to_be_none() {
        let directory = tempfile::tempdir().unwrap();
        let said = |path: &Path| Store::read(path).unwrap_err().to_string();
        let text = directory.path().join("text");
        std::fs::write(&text, "x".repeat(4096)).unwrap();
        assert!(said(&text).contains("not a database"), "{}", said(&text));
        let other = directory.path().join("other.db");
        Connection::open(&other).unwrap().execute_batch("CREATE TABLE a(b)").unwrap();
        assert!(said(&other).contains("not of a mesh"));
        assert!(said(&directory.path().join("none")).contains("unable to open"));
        let later = store(directory.path());
        later.db.pragma_update(None, "user_version", 7).unwrap();
        drop(later);
        assert!(said(directory.path()).contains("version 7"));
    }

    #[test]
    fn a_file_that_no_node_made_is_refused_whatever_it_holds() {
        let made = |with: &str| {
            let directory = tempfile::tempdir().unwrap();
            drop(filled(directory.path()));
            Connection::open(directory.path().join(FILE)).unwrap().execute_batch(with).unwrap();
            Store::read(directory.path()).and_then(|store| store.history(i64::MIN..i64::MAX)).map(drop)
        };
        made("").unwrap();
        let endless = "DROP TABLE minute; CREATE VIEW minute AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)
                       SELECT x AS id, 0 AS at_ms FROM n";
        let trigger = "CREATE TRIGGER t AFTER INSERT ON site BEGIN DELETE FROM transfer; END";
        let many = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n LIMIT 70000) INSERT INTO site(name) SELECT 's' || x FROM n";
        let hops = "WITH RECURSIVE n(x) AS (SELECT '*' UNION ALL SELECT x || ' *' FROM n LIMIT 65) INSERT INTO route SELECT NULL, 0, 1, 2, max(x) FROM n";
        for (with, said) in [
            (endless, "\"minute\" in a form of its own"),
            (trigger, "\"t\" in a form of its own"),
            ("DROP TABLE route", "has no route"),
            (many, "more than 1024 names of a site"),
            ("UPDATE site SET name = char(27) || '[31m' WHERE id = 1", "is no name of a site"),
            ("UPDATE controller SET name = 'a,b' WHERE id = 1", "is no name of a controller"),
            ("UPDATE transfer SET segments = -5", "out of range"),
            ("UPDATE transfer SET trouble = 99", "out of range"),
            ("UPDATE transfer SET receiver = 99", "out of range"),
            (hops, "out of range"),
        ] {
            let error = made(with).unwrap_err().to_string();
            assert!(error.contains(said), "{with}: {error}");
        }
        assert!(Store::read(Path::new("/dev/zero")).unwrap_err().to_string().contains("not a regular file"));
    }

    #[test]
    fn a_site_that_names_ever_more_sites_is_not_taken_from() {
        let directory = tempfile::tempdir().unwrap();
        let mut to = store(directory.path());
        let sites = (0..2000).map(|i| format!("s{i}")).collect();
        let source =
            Source { site: "sea".into(), store: 7, sites, controllers: vec!["cubic".into(), "bbr".into()] };
        let error = to.pull(&source, Table::Transfers, &rows()[..1], 1).unwrap_err().to_string();
        assert!(error.contains("sea names more"), "{error}");
        assert_eq!(to.names().unwrap().1, ["lab", "sea"], "nothing of it stays");
    }
}
