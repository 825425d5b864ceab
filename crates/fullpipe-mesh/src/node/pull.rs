//! Records from site to site: asked for by id, a piece at a time, and gone on with where it was left.

use super::stop::lock;
use super::{Event, Shared};
use crate::channel::{Channel, Lost, OPENING_BYTES, dial};
use crate::file::{Mesh, is_plain};
use crate::hello::{Hello, Purpose};
use crate::key::{KeyError, Keys};
use crate::message::{Message, ROWS_BYTES, Row, Table};
use crate::record::{SiteId, Trouble};
use crate::store::{Source, Store, StoreError};
use fullpipe_units::Span;
use std::net::ToSocketAddrs;
use std::time::{Duration, Instant};

/// For one answer; a piece of records is small.
const ANSWER: Duration = Duration::from_secs(30);
/// Between two times that records are given to the site that collects them, and taken from it.
const EVERY: Duration = Duration::from_secs(300);

/// Why records could not be pulled.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// There is no connection.
    #[error("{}", .0.in_words())]
    Connection(Trouble),
    /// There is no key for it.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The own store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What came is not what was asked for.
    #[error("it gives records that are not its own")]
    Forged,
    /// It broke off; what came before is kept.
    #[error("it broke off; what came before is kept")]
    BrokenOff,
    /// More than it can have.
    #[error(
        "it gives more {} than its node can have kept in {days} days: what is more is not taken", match table {
            Table::Transfers => "transfers",
            Table::Minutes => "minutes of probes",
            Table::Routes => "routes",
        }
    )]
    Excess {
        /// Of which kind.
        table: Table,
        /// How long a node keeps them.
        days: u32,
    },
    /// The other end's budget, or this one's.
    #[error("a budget of the day is spent; the rest comes another day")]
    Budget,
}

/// What an honest site can give. A member proves who it is, not that it tells the truth.
struct Bounds {
    days: u32,
    /// Milliseconds since 1970: a day from now. A clock may be wrong; a record of next year would make a page of all years.
    latest_ms: i64,
    transfers: u64,
    minutes: u64,
}

impl Bounds {
    fn of(mesh: &Mesh, now_ms: i64) -> Bounds {
        let others = mesh.sites.len().saturating_sub(1) as u64;
        let periods = u64::from(mesh.retention_days) * Span::from_secs(86_400).as_nanos()
            / mesh.period.as_nanos().max(1);
        // Twice what a node keeps, and some: what is old is removed a piece at a time, and clocks and files of meshes change.
        let most = |kept: u64| kept.saturating_mul(2).saturating_add(1000);
        Bounds {
            days: mesh.retention_days,
            latest_ms: now_ms.saturating_add(86_400_000),
            transfers: most(periods.saturating_mul(others * mesh.controllers.len() as u64)),
            minutes: most(u64::from(mesh.retention_days) * 1440 * others),
        }
    }

    /// At one time; a route changes less often than minutes pass.
    fn most(&self, table: Table) -> u64 {
        match table {
            Table::Transfers => self.transfers,
            Table::Minutes | Table::Routes => self.minutes,
        }
    }
}

/// How many records came.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pulled {
    /// Of all kinds.
    pub records: u64,
    /// Left out, for they are of a later day than this one.
    pub later: u64,
}

/// Pulls what is new of `site` into `store`, in the name of `own`, at `now_ms` (milliseconds since 1970). Records of a day that
/// has not begun anywhere are left out.
///
/// # Errors
/// [`PullError`] says why it came to no end; what came before stays, and the next time goes on from there.
pub fn collect(
    mesh: &Mesh,
    own: SiteId,
    site: SiteId,
    keys: &Keys,
    store: &mut Store,
    now_ms: i64,
) -> Result<Pulled, PullError> {
    let name = |id: SiteId| mesh.sites.get(usize::from(id)).map_or("", |s| s.name.as_str());
    let key = keys.pair(&mesh.name, name(own), name(site))?;
    let other = &mesh.sites[usize::from(site)];
    let address = (other.address.as_str(), other.port).to_socket_addrs().ok().and_then(|mut all| all.next());
    let address = address.ok_or(PullError::Connection(Trouble::Unreachable))?;
    let hello = |nonce| Hello {
        mesh: mesh.name.clone(),
        from: name(own).to_owned(),
        to: name(site).to_owned(),
        purpose: Purpose::Collect,
        nonce,
    };
    let mut channel =
        dial(address, None, &key, hello, Duration::from_secs(10)).map_err(PullError::Connection)?;
    let bounds = Bounds::of(mesh, now_ms);
    pull(&mut channel, name(site), &bounds, &mut |_| true, &mut || true, &mut |taken| taken(store))
}

/// Takes what is new of `site` from the store of its own node, on the same machine.
///
/// # Errors
/// When one of the stores fails.
pub fn copy(from: &Store, site: &str, to: &mut Store) -> Result<Pulled, PullError> {
    let (number, sites, controllers) = from.names()?;
    let source = Source { site: site.to_owned(), store: number, sites, controllers };
    let mut pulled = Pulled::default();
    for table in Table::ALL {
        loop {
            let rows = from.after(table, site, to.pulled(site, number, table)?, ROWS_BYTES)?;
            let Some((last, _)) = rows.last() else { break };
            to.pull(&source, table, rows.iter().map(|(_, row)| row), *last)?;
            pulled.records += rows.len() as u64;
        }
    }
    Ok(pulled)
}

/// Does something with the store; by this, nobody has it while the network is waited for.
type WithStore<'a> =
    dyn FnMut(&mut dyn FnMut(&mut Store) -> Result<u64, StoreError>) -> Result<u64, StoreError> + 'a;

/// Asks for all that is new.
fn pull(
    channel: &mut Channel,
    site: &str,
    bounds: &Bounds,
    pays: &mut dyn FnMut(u64) -> bool,
    goes_on: &mut dyn FnMut() -> bool,
    with: &mut WithStore<'_>,
) -> Result<Pulled, PullError> {
    let mut hear = |channel: &mut Channel| match channel.receive(Instant::now() + ANSWER, goes_on) {
        Ok(Message::Spent) => Err(PullError::Budget),
        Ok(message) => Ok(message),
        Err(Lost::Nonsense) => Err(PullError::Connection(Trouble::NotAMember)),
        Err(_) => Err(PullError::BrokenOff),
    };
    let Message::Stored { store: number, sites, controllers } = hear(channel)? else {
        return Err(PullError::Connection(Trouble::NotAMember));
    };
    // They go into tables, pages and terminals.
    let plain = |name: &String| is_plain(name);
    if !sites.iter().all(plain) || !controllers.iter().all(plain) {
        return Err(PullError::Forged);
    }
    let source = Source { site: site.to_owned(), store: number, sites, controllers };
    let own = source.sites.iter().position(|s| s == site).ok_or(PullError::Forged)? as SiteId;
    let mut pulled = Pulled::default();
    for table in Table::ALL {
        let mut given = 0;
        let mut after = with(&mut |store| store.pulled(site, number, table))?;
        loop {
            if !pays(ROWS_BYTES as u64) {
                let _ = channel.send(&Message::End);
                return Err(PullError::Budget);
            }
            channel.send(&Message::Ask { table, after }).map_err(|_| PullError::BrokenOff)?;
            let Message::Rows(rows) = hear(channel)? else { return Err(PullError::BrokenOff) };
            let Some((last, _)) = rows.last() else { break };
            // A site speaks for itself alone: for others it could say anything.
            let in_order =
                rows.is_sorted_by_key(|(id, _)| *id) && rows.first().is_some_and(|(id, _)| *id > after);
            let belongs = |row: &Row| match (table, row) {
                (Table::Transfers, Row::Transfer(t)) => usize::from(t.controller) < source.controllers.len(),
                (Table::Minutes, Row::Minute(_)) | (Table::Routes, Row::Route(_)) => true,
                _ => false,
            };
            let its_own = |row: &Row| {
                let (_, pair) = row.pair();
                pair.from == own && usize::from(pair.to) < source.sites.len() && belongs(row)
            };
            if !in_order || !rows.iter().all(|(_, row)| its_own(row)) {
                return Err(PullError::Forged);
            }
            given += rows.len() as u64;
            if given > bounds.most(table) {
                let _ = channel.send(&Message::End);
                return Err(PullError::Excess { table, days: bounds.days });
            }
            after = *last;
            let of_its_time =
                || rows.iter().map(|(_, row)| row).filter(|row| row.pair().0 <= bounds.latest_ms);
            with(&mut |store| store.pull(&source, table, of_its_time(), after).map(|()| 0))?;
            let taken = of_its_time().count() as u64;
            pulled.records += taken;
            pulled.later += rows.len() as u64 - taken;
        }
    }
    let _ = channel.send(&Message::End);
    Ok(pulled)
}

/// Answers who asks for this site's records.
pub(super) fn answer(shared: &Shared, channel: &mut Channel) -> Result<(), PullError> {
    let (store, sites, controllers) = lock(&shared.store).store.names()?;
    let say = |channel: &mut Channel, message: Message| {
        let message = if shared.ledger.small(message.to_bytes().len() as u64 + 200, shared.now()) {
            message
        } else {
            Message::Spent
        };
        channel.send(&message).map_err(|_| PullError::BrokenOff)
    };
    say(channel, Message::Stored { store, sites, controllers })?;
    loop {
        let asked = channel.receive(Instant::now() + ANSWER, &mut || !shared.stop.is_stopped());
        match asked {
            Ok(Message::Ask { table, after }) => {
                let rows = lock(&shared.store).store.after(table, &shared.own().name, after, ROWS_BYTES)?;
                say(channel, Message::Rows(rows))?;
            }
            Ok(Message::End) => return Ok(()),
            _ => return Err(PullError::BrokenOff),
        }
    }
}

/// Takes what a site gives that has called to give its records.
pub(super) fn taken(shared: &Shared, peer: SiteId, channel: &mut Channel) -> Result<(), PullError> {
    let site = shared.name(peer).to_owned();
    let took = if shared.mesh.collector == Some(shared.site) {
        pull(
            channel,
            &site,
            &Bounds::of(&shared.mesh, shared.now().wall_ms),
            &mut |bytes| shared.ledger.small(bytes, shared.now()),
            &mut || !shared.stop.is_stopped(),
            &mut |act| act(&mut lock(&shared.store).store),
        )
    } else {
        let _ = channel.send(&Message::End);
        Err(PullError::Connection(Trouble::NotAMember))
    };
    if let Err(e) = &took {
        shared.log(&Event::NotPulled { site, reason: e.to_string() });
    }
    took.map(drop)
}

/// Calls the site that collects and gives it what is new, now and then, until the node ends.
pub(super) fn give_and_take(shared: &Shared, collector: SiteId) {
    if collector == shared.site {
        return;
    }
    let mut told = false;
    while shared.stop.sleep(EVERY.min(Duration::from(shared.mesh.period) * 5)) {
        let given = give(shared, collector);
        match given {
            Ok(()) => told = false,
            Err(e) => {
                if !std::mem::replace(&mut told, true) {
                    let site = shared.name(collector).to_owned();
                    shared.log(&Event::NotPulled { site, reason: e.to_string() });
                }
            }
        }
    }
}

fn give(shared: &Shared, collector: SiteId) -> Result<(), PullError> {
    if !shared.ledger.small(OPENING_BYTES, shared.now()) {
        return Err(PullError::Budget);
    }
    let key = shared.key(collector).ok_or(PullError::Connection(Trouble::NotAMember))?;
    let address = *shared.resolve(collector).first().ok_or(PullError::Connection(Trouble::Unreachable))?;
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
        return Err(PullError::BrokenOff);
    }
    answer(shared, &mut channel)
}
