//! Records of connections that closed: from a socket's last account to the form `fullpipe/connection/1`.

mod account;
mod anonymous;

pub use anonymous::{Anonymiser, Key, KeyError};

use crate::filter::{Filter, Subject};
use crate::owner::{Groups, Owner, Process};
use fullpipe_experiment::connection::Connection;
use fullpipe_kernel::closed::ClosedSocket;
use fullpipe_kernel::printable;
use fullpipe_kernel::tcp_info::State;
use fullpipe_units::Time;
use std::sync::Arc;

/// Makes records of sockets that closed.
#[derive(Debug)]
pub struct Records {
    filter: Filter,
    anonymiser: Option<Anonymiser>,
    groups: Groups,
    began: Time,
    made: u32,
}

impl Records {
    /// Of those that `filter` wants; `began` is when it was first looked for them, on the kernel's monotonic clock.
    pub fn new(filter: Filter, anonymiser: Option<Anonymiser>, began: Time) -> Records {
        Records { filter, anonymiser, groups: Groups::default(), began, made: 0 }
    }

    /// The record of a socket; none of one that is not wanted. `epoch` is what to add to a time of the kernel's monotonic
    /// clock to have seconds since 1970.
    pub fn record(&mut self, closed: &ClosedSocket, epoch: f64) -> Option<Connection> {
        let process = closed
            .process
            .as_ref()
            .map(|(pid, name)| Arc::new(Process { pid: *pid, name: printable::line(name).into_owned() }));
        let cgroup = closed.cgroup.and_then(|inode| self.groups.path(inode));
        let cgroup = match (&closed.process, cgroup.as_deref()) {
            (Some((pid, _)), None | Some("/")) => self.groups.of_process(*pid).or(cgroup),
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
        if !self.filter.wants(&subject) {
            return None;
        }
        self.made = self.made.saturating_add(1);
        let mut record = account::record(closed, &owner, self.began, epoch, self.made);
        if let Some(anonymiser) = &self.anonymiser {
            record.client = anonymiser.replaced(record.client);
            record.server = anonymiser.replaced(record.server);
        }
        Some(record)
    }
}
