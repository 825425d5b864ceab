//! Records of closed connections: from the counters of a closed socket to the schema
//! `fullpipe/connection/1`.

mod account;
mod anonymous;

pub use anonymous::{Anonymiser, Key, KeyError};

use crate::filter::{Filter, Subject};
use crate::owner::{Cgroups, Owner, Process};
use fullpipe_experiment::connection::Connection;
use fullpipe_kernel::closed::ClosedSocket;
use fullpipe_kernel::printable;
use fullpipe_kernel::tcp_info::State;
use fullpipe_units::Time;
use std::sync::Arc;

/// Creates records of closed sockets.
#[derive(Debug)]
pub struct Records {
    filter: Filter,
    anonymiser: Option<Anonymiser>,
    cgroups: Cgroups,
    began: Time,
    count: u32,
}

impl Records {
    /// Records connections that match `filter`; `began` is the start of recording on the kernel's
    /// monotonic clock.
    pub fn new(filter: Filter, anonymiser: Option<Anonymiser>, began: Time) -> Records {
        Records { filter, anonymiser, cgroups: Cgroups::default(), began, count: 0 }
    }

    /// The record of a socket; `None` if it does not match. `epoch` is the offset from the kernel's
    /// monotonic clock to Unix time, in seconds.
    pub fn record(&mut self, closed: &ClosedSocket, epoch: f64) -> Option<Connection> {
        let process = closed
            .process
            .as_ref()
            .map(|(pid, name)| Arc::new(Process { pid: *pid, name: printable::line(name).into_owned() }));
        let cgroup = closed.cgroup.and_then(|inode| self.cgroups.path(inode));
        let cgroup = match (&closed.process, cgroup.as_deref()) {
            (Some((pid, _)), None | Some("/")) => self.cgroups.for_process(*pid).or(cgroup),
            _ => cgroup,
        };
        let owner = Owner { process, cgroup };
        let subject = Subject {
            local: closed.local,
            remote: closed.remote,
            state: State::Close,
            controller: Some(&closed.controller),
            owner: &owner,
        };
        if !self.filter.matches(&subject) {
            return None;
        }
        self.count = self.count.saturating_add(1);
        let mut record = account::record(closed, &owner, self.began, epoch, self.count);
        if let Some(anonymiser) = &self.anonymiser {
            record.client = anonymiser.anonymise(record.client);
            record.server = anonymiser.anonymise(record.server);
        }
        Some(record)
    }
}
