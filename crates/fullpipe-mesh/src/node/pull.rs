//! Transfer of records between sites: requested by id in pieces, and resumable.

use super::probes::MINUTE_DELAY;
use super::stop::lock;
use super::{Event, Shared};
use crate::channel::{Channel, MESSAGE_BYTES, OPENING_BYTES, ReceiveError, dial};
use crate::file::{Mesh, is_plain};
use crate::hello::{Hello, Purpose};
use crate::key::{KeyError, Keys};
use crate::message::{MAX_ROWS_BYTES, Message, Row, Table};
use crate::record::{ControllerId, Pair, SiteId, TransferError};
use crate::store::{Source, Store, StoreError, slot_ms};
use fullpipe_units::Span;
use std::net::ToSocketAddrs;
use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

/// Timeout for one reply; pieces are small.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time of an exchange with one site; the next one resumes it.
const MAX_EXCHANGE_TIME: Duration = Duration::from_secs(3600);
/// Interval between pushes to the collector.
const SYNC_INTERVAL: Duration = Duration::from_secs(300);

const DAY_MS: i64 = 86_400_000;
/// Differences of clocks that are waited for.
const CLOCK_DIFFERENCE: Duration = Duration::from_secs(60);

/// Why records could not be pulled.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// No connection.
    #[error("{}", .0.description())]
    Connection(TransferError),
    /// No key for the site.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The own store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The peer sent rows that are not its own or were not requested.
    #[error("the site sent records that are not its own")]
    ForeignRecords,
    /// The exchange was interrupted; received records are kept.
    #[error("interrupted; the records received so far are kept")]
    Interrupted,
    /// The peer sent more than it can have recorded.
    #[error(
        "the site sent more {} than its node can have recorded in {days} days; the excess is \
            ignored", match table {
            Table::Transfers => "transfers",
            Table::Minutes => "minutes of probes",
            Table::Routes => "routes",
        }
    )]
    Excess {
        /// The table.
        table: Table,
        /// Retention in days.
        days: u32,
    },
    /// A daily budget is exhausted.
    #[error("a daily budget is exhausted; the remaining records follow another day")]
    Budget,
}

/// Ids that are searched at once for rows of one site.
const IDS_AT_ONCE: u64 = 50_000;
/// Stored rows that are visited at once to import others, about.
const ROWS_AT_ONCE: usize = 20_000;
/// Routes of a direction in a day, at most (`routes::MIN_INTERVAL`).
const ROUTES_PER_DAY: u64 = 86_400 / super::routes::MIN_INTERVAL.as_secs();

/// Limits for the records of one site. Authentication proves a member's identity, not its honesty.
struct Bounds<'a> {
    mesh: &'a Mesh,
    /// Milliseconds since 1970: from one day before the retention to one day in the future. Clocks may
    /// be wrong, but a record of next year would stretch the report to a year, and expired records
    /// that a site pushes after each deletion would delay that of others.
    time: RangeInclusive<i64>,
    transfers: u64,
    minutes: u64,
    routes: u64,
}

impl Bounds<'_> {
    fn new(mesh: &Mesh, now_ms: i64) -> Bounds<'_> {
        let others = mesh.sites.len().saturating_sub(1) as u64;
        let periods = u64::from(mesh.retention_days) * Span::from_secs(86_400).as_nanos()
            / mesh.period.as_nanos().max(1);
        // Twice what a node keeps, plus some: old records are deleted gradually, and clocks and
        // mesh files change.
        let limit = |kept: u64| kept.saturating_mul(2).saturating_add(1000);
        Bounds {
            mesh,
            time: now_ms.saturating_sub((i64::from(mesh.retention_days) + 1) * DAY_MS)
                ..=now_ms.saturating_add(DAY_MS),
            transfers: limit(periods.saturating_mul(others * mesh.controllers.len() as u64)),
            minutes: limit(u64::from(mesh.retention_days) * 1440 * others),
            routes: limit(u64::from(mesh.retention_days) * ROUTES_PER_DAY * others),
        }
    }

    /// The limit for a table.
    fn limit(&self, table: Table) -> u64 {
        match table {
            Table::Transfers => self.transfers,
            Table::Minutes => self.minutes,
            Table::Routes => self.routes,
        }
    }

    /// Rows that are imported at once: their times are looked up among the records of all sites, which
    /// must not take the store from others for long. The last piece may be empty.
    fn pieces<'r>(&self, table: Table, rows: &'r [(u64, Row)]) -> Vec<&'r [(u64, Row)]> {
        let sites = self.mesh.sites.len().max(1);
        let controllers = if table == Table::Transfers { self.mesh.controllers.len() } else { 1 };
        let most = (ROWS_AT_ONCE / (sites * sites * controllers).max(1)).max(1);
        let slot = slot_ms(table, self.mesh.period);
        let (mut pieces, mut begin, mut changes) = (Vec::new(), 0, 0);
        for (number, pair) in rows.windows(2).enumerate() {
            let slot_of = |(_, row): &(u64, Row)| row.pair().0.div_euclid(slot);
            changes += usize::from(slot_of(&pair[0]) != slot_of(&pair[1]));
            if changes >= most {
                pieces.push(&rows[begin..=number]);
                (begin, changes) = (number + 1, 0);
            }
        }
        pieces.push(&rows[begin..]);
        pieces
    }

    /// Whether a node of this mesh file can have recorded the row.
    fn is_possible(&self, row: &Row) -> bool {
        // Transfers may become smaller when the mesh file changes.
        let most = self.mesh.size.saturating_mul(2);
        !matches!(row, Row::Transfer(t) if t.outcome.done().is_some_and(|done| done.bytes > most))
    }
}

/// From the ids of a site's store to those of the mesh file; `None` for names that it does not
/// have.
struct Translation {
    own: SiteId,
    sites: Vec<Option<SiteId>>,
    controllers: Vec<Option<ControllerId>>,
}

impl Translation {
    fn new(mesh: &Mesh, own: SiteId, sites: &[String], controllers: &[String]) -> Translation {
        let site = |name: &String| mesh.sites.iter().position(|site| site.name == *name);
        let controller = |name: &String| mesh.controllers.iter().position(|other| other == name);
        Translation {
            own,
            sites: sites.iter().map(|name| site(name).map(|id| id as SiteId)).collect(),
            controllers: controllers
                .iter()
                .map(|name| controller(name).map(|id| id as ControllerId))
                .collect(),
        }
    }

    /// A row of the site with the mesh file's ids; `None` if it refers to other names.
    fn row(&self, mut row: Row) -> Option<Row> {
        let pair = match &mut row {
            Row::Transfer(transfer) => {
                transfer.controller = (*self.controllers.get(usize::from(transfer.controller))?)?;
                &mut transfer.pair
            }
            Row::Minute(minute) => &mut minute.pair,
            Row::Route(route) => &mut route.pair,
        };
        let to = (*self.sites.get(usize::from(pair.to))?)?;
        *pair = Pair { from: self.own, to };
        (to != self.own).then_some(row)
    }
}

/// Numbers of pulled records.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PullSummary {
    /// Records of all tables.
    pub records: u64,
    /// Records skipped because they are dated in the future, or before the retention.
    pub misdated: u64,
    /// Records skipped because the mesh file does not have their receiver, controller or size.
    pub unknown: u64,
}

/// Pulls new records of `site` into `store` on behalf of `own`, at `now_ms` (milliseconds since
/// 1970). Records dated more than a day ahead, or a day before the retention, are skipped, as are
/// those that the mesh file does not have the names or size of.
///
/// # Errors
/// [`PullError`] says why the pull is incomplete; received records are kept and the next pull
/// resumes.
pub fn collect(
    mesh: &Mesh,
    own: SiteId,
    site: SiteId,
    keys: &Keys,
    store: &mut Store,
    now_ms: i64,
) -> Result<PullSummary, PullError> {
    let name = |id: SiteId| mesh.sites.get(usize::from(id)).map_or("", |s| s.name.as_str());
    let key = keys.pair(&mesh.name, name(own), name(site))?;
    let other = &mesh.sites[usize::from(site)];
    let address = (other.address.as_str(), other.port).to_socket_addrs().ok().and_then(|mut all| all.next());
    let address = address.ok_or(PullError::Connection(TransferError::Unreachable))?;
    let hello = |nonce| Hello {
        mesh: mesh.name.clone(),
        from: name(own).to_owned(),
        to: name(site).to_owned(),
        purpose: Purpose::Collect,
        nonce,
    };
    let mut channel =
        dial(address, None, &key, hello, Duration::from_secs(10)).map_err(PullError::Connection)?;
    channel.expect_records();
    let bounds = Bounds::new(mesh, now_ms);
    pull(&mut channel, site, &bounds, &mut |_| true, &mut || true, &mut |taken| taken(store))
}

/// Copies new records of `site` from its own store on the same machine.
///
/// # Errors
/// If a store fails.
pub fn copy(from: &Store, site: &str, to: &mut Store) -> Result<PullSummary, PullError> {
    let (number, sites, controllers) = from.names()?;
    let source = Source { site: site.to_owned(), store: number, sites, controllers };
    let mut pulled = PullSummary::default();
    for table in Table::ALL {
        loop {
            let rows =
                from.rows_after(table, site, to.last_imported(site, number, table)?, MAX_ROWS_BYTES)?;
            let Some((last, _)) = rows.last() else { break };
            to.import(&source, table, rows.iter().map(|(_, row)| row), *last, None)?;
            pulled.records += rows.len() as u64;
        }
    }
    Ok(pulled)
}

/// Runs a closure with the store, which is not locked while waiting for the network.
type WithStore<'a> =
    dyn FnMut(&mut dyn FnMut(&mut Store) -> Result<(), StoreError>) -> Result<(), StoreError> + 'a;

/// Requests all new rows.
fn pull(
    channel: &mut Channel,
    site: SiteId,
    bounds: &Bounds<'_>,
    reserve: &mut dyn FnMut(u64) -> bool,
    keep_waiting: &mut dyn FnMut() -> bool,
    with: &mut WithStore<'_>,
) -> Result<PullSummary, PullError> {
    // Other sites may be next.
    let ends = Instant::now() + MAX_EXCHANGE_TIME;
    let mut next_message = |channel: &mut Channel| match channel
        .receive(ends.min(Instant::now() + REPLY_TIMEOUT), keep_waiting)
    {
        Ok(Message::BudgetSpent) => Err(PullError::Budget),
        Ok(message) => Ok(message),
        Err(ReceiveError::Malformed) => Err(PullError::Connection(TransferError::NotAMember)),
        Err(_) => Err(PullError::Interrupted),
    };
    let Message::Catalog { store: number, sites, controllers } = next_message(channel)? else {
        return Err(PullError::Connection(TransferError::NotAMember));
    };
    // Names are printed in tables, pages and terminals.
    let plain = |name: &String| is_plain(name);
    if !sites.iter().all(plain) || !controllers.iter().all(plain) {
        return Err(PullError::ForeignRecords);
    }
    let mesh = bounds.mesh;
    let name = mesh.sites.get(usize::from(site)).map_or("", |s| s.name.as_str());
    let own = sites.iter().position(|s| s == name).ok_or(PullError::ForeignRecords)? as SiteId;
    let translation = Translation::new(mesh, site, &sites, &controllers);
    let source = Source {
        site: name.to_owned(),
        store: number,
        sites: mesh.sites.iter().map(|site| site.name.clone()).collect(),
        controllers: mesh.controllers.clone(),
    };
    let mut pulled = PullSummary::default();
    for table in Table::ALL {
        let mut after = 0;
        with(&mut |store| {
            after = store.last_imported(name, number, table)?;
            Ok(())
        })?;
        let mut received = 0;
        loop {
            if !reserve(MAX_ROWS_BYTES as u64) {
                let _ = channel.send(&Message::End);
                return Err(PullError::Budget);
            }
            channel.send(&Message::Request { table, after }).map_err(|_| PullError::Interrupted)?;
            let Message::Rows(rows) = next_message(channel)? else { return Err(PullError::Interrupted) };
            let Some((last, _)) = rows.last() else { break };
            // A site may only send its own records.
            let in_order =
                rows.is_sorted_by_key(|(id, _)| *id) && rows.first().is_some_and(|(id, _)| *id > after);
            let belongs = |row: &Row| match (table, row) {
                (Table::Transfers, Row::Transfer(t)) => usize::from(t.controller) < controllers.len(),
                (Table::Minutes, Row::Minute(_)) | (Table::Routes, Row::Route(_)) => true,
                _ => false,
            };
            let its_own = |row: &Row| {
                let (_, pair) = row.pair();
                pair.from == own && usize::from(pair.to) < sites.len() && belongs(row)
            };
            if !in_order || !rows.iter().all(|(_, row)| its_own(row)) {
                return Err(PullError::ForeignRecords);
            }
            after = *last;
            let (given, mut misdated) = (rows.len() as u64, 0);
            let mut kept = Vec::with_capacity(rows.len());
            for (id, row) in rows {
                let Some(row) = translation.row(row) else { continue };
                if !bounds.time.contains(&row.pair().0) {
                    misdated += 1;
                } else if bounds.is_possible(&row) {
                    kept.push((id, row));
                }
            }
            pulled.misdated += misdated;
            pulled.unknown += given - misdated - kept.len() as u64;
            received += given;
            let mut excess = 0;
            let pieces = bounds.pieces(table, &kept);
            for (number, piece) in pieces.iter().enumerate() {
                let last = piece.last().filter(|_| number + 1 < pieces.len()).map_or(after, |(id, _)| *id);
                let began = Instant::now();
                with(&mut |store| {
                    let rows = piece.iter().map(|(_, row)| row);
                    let imported = store.import(&source, table, rows, last, Some(bounds.limit(table)))?;
                    pulled.records += imported.stored;
                    excess += imported.excess;
                    Ok(())
                })?;
                leave_to_others(began);
            }
            // Records that are skipped could be sent without end.
            if excess > 0 || received > bounds.limit(table) {
                let _ = channel.send(&Message::End);
                return Err(PullError::Excess { table, days: mesh.retention_days });
            }
        }
    }
    let _ = channel.send(&Message::End);
    Ok(pulled)
}

/// Waits, without the store's lock, about as long as the work since `began` had it: threads that
/// answer probes and record transfers wait for it.
fn leave_to_others(began: Instant) {
    std::thread::sleep(began.elapsed().min(Duration::from_millis(100)));
}

/// Rows of this site after an id. A store may have many of other sites between them, so that it is
/// searched in pieces.
fn own_rows(shared: &Shared, table: Table, after: u64) -> Result<Vec<(u64, Row)>, PullError> {
    let mut ids = after..after;
    loop {
        ids = ids.end..ids.end.saturating_add(IDS_AT_ONCE);
        let began = Instant::now();
        let (rows, is_last) = {
            let recorder = lock(&shared.store);
            let rows = recorder.store.rows_within(table, &shared.own().name, ids.clone(), MAX_ROWS_BYTES)?;
            (rows, ids.end >= recorder.store.highest_id(table)?)
        };
        leave_to_others(began);
        if !rows.is_empty() || is_last || shared.stop.is_stopped() {
            return Ok(rows);
        }
    }
}

/// Serves this site's rows to a peer.
pub(super) fn serve_rows(shared: &Shared, peer: SiteId, channel: &mut Channel) -> Result<(), PullError> {
    let (store, sites, controllers) = lock(&shared.store).store.names()?;
    let send = |channel: &mut Channel, message: Message| {
        let bytes = message.to_bytes().len() as u64 + MESSAGE_BYTES;
        let is_affordable = shared.ledger.reserve_small(Some(peer), bytes, shared.now());
        channel
            .send(if is_affordable { &message } else { &Message::BudgetSpent })
            .map_err(|_| PullError::Interrupted)?;
        if is_affordable { Ok(()) } else { Err(PullError::Budget) }
    };
    send(channel, Message::Catalog { store, sites, controllers })?;
    loop {
        let asked = channel.receive(Instant::now() + REPLY_TIMEOUT, &mut || !shared.stop.is_stopped());
        if !shared.wait_for_message_quota(peer) {
            return Err(PullError::Interrupted);
        }
        match asked {
            Ok(Message::Request { table, after }) => {
                send(channel, Message::Rows(own_rows(shared, table, after)?))?;
            }
            Ok(Message::End) => return Ok(()),
            _ => return Err(PullError::Interrupted),
        }
    }
}

/// Receives the rows of a peer that pushes its records. One that pushes more often than a node does
/// is not served: each attempt costs time of the store and, if it fails, a line in the log.
pub(super) fn accept_push(shared: &Shared, peer: SiteId, channel: &mut Channel) -> Result<(), PullError> {
    if !shared.allows(peer, |quota| &mut quota.pushes) {
        return Err(PullError::Interrupted);
    }
    let site = shared.name(peer).to_owned();
    let took = if shared.mesh.collector == Some(shared.site) {
        channel.expect_records();
        pull(
            channel,
            peer,
            &Bounds::new(&shared.mesh, shared.now().wall_ms),
            &mut |bytes| {
                shared.wait_for_message_quota(peer)
                    && shared.ledger.reserve_small(Some(peer), bytes, shared.now())
            },
            &mut || !shared.stop.is_stopped(),
            &mut |act| act(&mut lock(&shared.store).store),
        )
    } else {
        let _ = channel.send(&Message::End);
        Err(PullError::Connection(TransferError::NotAMember))
    };
    if let (Err(e), false) = (&took, shared.stop.is_stopped()) {
        shared.log(&Event::SyncFailed { site, reason: e.to_string() });
    }
    took.map(drop)
}

/// Time between pushes to the collector.
pub(super) fn sync_interval(mesh: &Mesh) -> Duration {
    SYNC_INTERVAL.min(Duration::from(mesh.period) * 5)
}

/// How long after the end of a period a node normally has its records: a transfer ends in the next
/// period at the latest, a minute of probes that begins in a period is stored when it is complete,
/// clocks may differ by a minute, and a collector gets the records of others with their next push.
pub fn delivery_delay(mesh: &Mesh, site: SiteId) -> Duration {
    let own = Duration::from(mesh.period).max(MINUTE_DELAY);
    if mesh.collector == Some(site) { own + sync_interval(mesh) + CLOCK_DIFFERENCE } else { own }
}

/// Pushes new records to the collector at intervals until the node stops.
pub(super) fn sync_with_collector(shared: &Shared, collector: SiteId) {
    if collector == shared.site {
        return;
    }
    let mut reported = false;
    while shared.stop.sleep(sync_interval(&shared.mesh)) {
        let given = push_to(shared, collector);
        match given {
            Ok(()) => reported = false,
            Err(e) => {
                if !std::mem::replace(&mut reported, true) {
                    let site = shared.name(collector).to_owned();
                    shared.log(&Event::SyncFailed { site, reason: e.to_string() });
                }
            }
        }
    }
}

fn push_to(shared: &Shared, collector: SiteId) -> Result<(), PullError> {
    if !shared.ledger.reserve_small(Some(collector), OPENING_BYTES, shared.now()) {
        return Err(PullError::Budget);
    }
    let key = shared.key(collector).ok_or(PullError::Connection(TransferError::NotAMember))?;
    let address =
        *shared.resolve(collector).first().ok_or(PullError::Connection(TransferError::Unreachable))?;
    let hello = |nonce| Hello {
        mesh: shared.mesh.name.clone(),
        from: shared.own().name.clone(),
        to: shared.name(collector).to_owned(),
        purpose: Purpose::Push,
        nonce,
    };
    let mut channel =
        dial(address, None, key, hello, Duration::from_secs(10)).map_err(PullError::Connection)?;
    if !shared.stop.watch(&channel.stream) {
        return Err(PullError::Interrupted);
    }
    serve_rows(shared, collector, &mut channel)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Minute, Pair};

    #[test]
    fn rows_of_many_times_are_imported_in_small_pieces() {
        let mut text = "[mesh]\nname = 'a'\nkey_file = 'k'\n".to_owned();
        for site in 0..64 {
            text += &format!("[[site]]\nname = 's{site}'\naddress = '192.0.2.{site}'\n");
        }
        let mesh = Mesh::parse("mesh.toml", &text).unwrap();
        let bounds = Bounds::new(&mesh, 0);
        let row = |id: u64, at_ms| {
            let pair = Pair { from: 0, to: 1 };
            (id, Row::Minute(Minute { at_ms, pair, sent: 1, arrived: 0, answered: 0, rtt: None }))
        };
        // One time: one piece. Each row of its own: four minutes of 64² rows are visited at once.
        let same: Vec<_> = (1..=2000).map(|id| row(id, 5)).collect();
        assert_eq!(bounds.pieces(Table::Minutes, &same).len(), 1);
        let other: Vec<_> = (1..=2000).map(|id| row(id, id as i64 * 60_000)).collect();
        let pieces = bounds.pieces(Table::Minutes, &other);
        assert!(pieces.iter().all(|piece| piece.len() <= 4), "{}", pieces.len());
        assert_eq!(pieces.concat(), other);
        assert_eq!(bounds.pieces(Table::Minutes, &[]), [&[][..]]);
    }
}
