//! The traffic of each address, at most at the allowed rate: it persists from one connection, test
//! or stream to the next, whatever the protocol.

use super::admission::address_group;
use super::lock;
use crate::account::Account;
use fullpipe_units::Rate;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

/// Addresses that are remembered, in some 20 MB of memory.
const MAX_REMEMBERED: usize = 65_536;
/// Addresses examined for the one to forget.
const MAX_EXAMINED: usize = 8;

/// The accounts by address, or by IPv6 /64.
#[derive(Debug)]
pub(super) struct Accounts {
    rate: Rate,
    stopping: Arc<AtomicBool>,
    table: Mutex<Table>,
    max: usize,
}

/// Each address is in the queue once, roughly in the order of its last use.
#[derive(Debug, Default)]
struct Table {
    by_address: HashMap<IpAddr, Arc<Account>>,
    queue: VecDeque<IpAddr>,
}

impl Accounts {
    pub fn new(rate: Rate, stopping: Arc<AtomicBool>) -> Accounts {
        Accounts { rate, stopping, table: Mutex::default(), max: MAX_REMEMBERED }
    }

    /// The account of an address.
    pub fn account(&self, ip: IpAddr) -> Arc<Account> {
        let group = address_group(ip);
        let mut table = lock(&self.table);
        if let Some(account) = table.by_address.get(&group) {
            return Arc::clone(account);
        }
        if table.queue.len() >= self.max {
            table.forget_one();
        }
        let account = Arc::new(Account::new(self.rate, Arc::clone(&self.stopping)));
        table.by_address.insert(group, Arc::clone(&account));
        table.queue.push_back(group);
        account
    }

    /// Number of addresses that are remembered.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        lock(&self.table).by_address.len()
    }
}

impl Table {
    /// Forgets an address without connections, if possible one that has paid for everything: a new
    /// account permits no more than that one. To be forgotten while in debt, an address needs tens
    /// of thousands of others, each with an account of its own.
    fn forget_one(&mut self) {
        let mut in_debt = None;
        for _ in 0..MAX_EXAMINED.min(self.queue.len()) {
            let Some(address) = self.queue.pop_front() else { return };
            let Some(account) = self.by_address.get(&address) else { continue };
            let in_use = Arc::strong_count(account) > 1;
            if !in_use && account.sent.is_paid() && account.received.is_paid() {
                self.by_address.remove(&address);
                self.queue.extend(in_debt);
                return;
            }
            if !in_use && in_debt.is_none() {
                in_debt = Some(address);
            } else {
                self.queue.push_back(address);
            }
        }
        if let Some(address) = in_debt {
            self.by_address.remove(&address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn accounts(max: usize) -> Accounts {
        Accounts { max, ..Accounts::new(Rate::from_bytes_per_sec(1000), Arc::default()) }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn in_debt(account: &Account) -> bool {
        !account.sent.charge(0, Duration::from_secs(1))
    }

    #[test]
    fn an_account_persists_and_covers_an_ipv6_network() {
        let accounts = accounts(100);
        let first = accounts.account(ip("192.0.2.1"));
        assert!(first.sent.charge(1_000_000, Duration::ZERO));
        drop(first);
        assert!(in_debt(&accounts.account(ip("::ffff:192.0.2.1"))));
        assert!(!in_debt(&accounts.account(ip("192.0.2.2"))));
        assert!(accounts.account(ip("2001:db8::1")).sent.charge(1_000_000, Duration::ZERO));
        assert!(in_debt(&accounts.account(ip("2001:db8::ffff:1"))));
        assert!(!in_debt(&accounts.account(ip("2001:db8:0:1::1"))));
    }

    #[test]
    fn other_addresses_neither_fill_the_table_nor_reset_an_account() {
        let accounts = accounts(100);
        let (used, debtor) = (accounts.account(ip("192.0.2.1")), ip("192.0.2.2"));
        assert!(used.sent.charge(1_000_000, Duration::ZERO));
        assert!(accounts.account(debtor).sent.charge(1_000_000, Duration::ZERO));
        for n in 0..1000_u32 {
            accounts.account(IpAddr::from((0x0a00_0000 + n).to_be_bytes()));
        }
        assert!(in_debt(&accounts.account(ip("192.0.2.1"))) && in_debt(&accounts.account(debtor)));
        let table = lock(&accounts.table);
        assert_eq!((table.by_address.len(), table.queue.len()), (100, 100));
    }

    #[test]
    fn a_table_of_debtors_stays_bounded() {
        let accounts = accounts(100);
        for n in 0..1000_u32 {
            let account = accounts.account(IpAddr::from((0x0a00_0000 + n).to_be_bytes()));
            assert!(account.sent.charge(1_000_000, Duration::ZERO));
        }
        let table = lock(&accounts.table);
        assert_eq!((table.by_address.len(), table.queue.len()), (100, 100));
    }
}
