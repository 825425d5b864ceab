//! Events of a node, for its log.

use crate::record::TransferError;
use fullpipe_units::{Rate, Span};
use std::fmt;
use std::net::IpAddr;

/// An event.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// The node started.
    Started {
        /// The node's site.
        site: String,
        /// The node's port.
        port: u16,
    },
    /// The node stopped.
    Stopped,
    /// A transfer completed.
    Done {
        /// The receiving site.
        to: String,
        /// The controller.
        controller: String,
        /// Payload divided by duration.
        goodput: Rate,
        /// Duration of the transfer.
        duration: Span,
    },
    /// A transfer failed.
    Failed {
        /// The receiving site.
        to: String,
        /// The controller.
        controller: String,
        /// The cause.
        error: TransferError,
    },
    /// A transfer started after the next slot had begun.
    Late {
        /// The receiving site.
        to: String,
        /// The controller.
        controller: String,
        /// Delay after its own slot.
        by: Span,
    },
    /// A connection was rejected.
    Rejected {
        /// The peer's address.
        from: IpAddr,
        /// The cause.
        reason: String,
    },
    /// Records cannot be stored.
    StoreFailed {
        /// The cause.
        reason: String,
    },
    /// Records are stored again.
    StoreRecovered {
        /// Records lost in between.
        lost: u64,
    },
    /// The budget file cannot be written; sending stops.
    BudgetWriteFailed {
        /// The cause.
        reason: String,
    },
    /// Records could not be exchanged with a site.
    SyncFailed {
        /// The site.
        site: String,
        /// The cause.
        reason: String,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Started { site, port } => write!(f, "site {site} listening on port {port}"),
            Event::Stopped => f.write_str("stopped"),
            Event::Done { to, controller, goodput, duration } => {
                let (mbit, seconds) = (goodput.as_bits_per_sec_f64() / 1e6, duration.as_secs_f64());
                write!(f, "to {to} with {controller}: {mbit:.1} Mbit/s, {seconds:.3} s")
            }
            Event::Failed { to, controller, error } => {
                write!(f, "to {to} with {controller}: {}", error.description())
            }
            Event::Late { to, controller, by } => {
                let seconds = by.as_secs_f64();
                write!(
                    f,
                    "to {to} with {controller}: started {seconds:.1} s late; transfers do not fit into \
                        their slots"
                )
            }
            Event::Rejected { from, reason } => write!(f, "rejected connection from {from}: {reason}"),
            Event::StoreFailed { reason } => {
                write!(
                    f,
                    "cannot store records: {reason}; earlier records are kept and the node keeps running"
                )
            }
            Event::StoreRecovered { lost } => write!(f, "storing records again; {lost} were lost"),
            Event::BudgetWriteFailed { reason } => {
                write!(f, "cannot write the budget file, sending is suspended: {reason}")
            }
            Event::SyncFailed { site, reason } => write!(f, "cannot exchange records with {site}: {reason}"),
        }
    }
}

impl TransferError {
    /// A short name for tables and metrics.
    pub fn name(self) -> &'static str {
        match self {
            TransferError::Unreachable => "unreachable",
            TransferError::Refused => "refused",
            TransferError::NotAMember => "not-a-member",
            TransferError::Version => "version",
            TransferError::MtuBlackHole => "mtu-black-hole",
            TransferError::Stalled => "stalled",
            TransferError::TooSlow => "too-slow",
            TransferError::Broken => "broken",
            TransferError::SenderBudget => "sender-budget",
            TransferError::ReceiverBudget => "receiver-budget",
            TransferError::NoSuchController => "no-such-controller",
            TransferError::Busy => "busy",
        }
    }

    /// A one-line description.
    pub fn description(self) -> &'static str {
        match self {
            TransferError::Unreachable => "unreachable: connection timed out",
            TransferError::Refused => "refused: no process listens, or the peer has too many connections",
            TransferError::NotAMember => {
                "not a member: the peer is not the site in the mesh file, or has another key"
            }
            TransferError::Version => "protocol version mismatch",
            TransferError::MtuBlackHole => {
                "MTU black hole: small messages arrive, full-sized segments do not"
            }
            TransferError::Stalled => "stalled: data was sent and nothing more was acknowledged",
            TransferError::TooSlow => "too slow: the transfer did not complete within its time limit",
            TransferError::Broken => "connection failed",
            TransferError::SenderBudget => "this site's daily budget is exhausted",
            TransferError::ReceiverBudget => "the peer's daily budget is exhausted",
            TransferError::NoSuchController => "controller not available in this kernel, or not permitted",
            TransferError::Busy => "one of the two sites was busy with other transfers for the whole period",
        }
    }
}
