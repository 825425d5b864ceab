//! What happens to a node, for its log.

use crate::record::Trouble;
use fullpipe_units::{Rate, Span};
use std::fmt;
use std::net::IpAddr;

/// Something that happened.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// It runs.
    Started {
        /// Which site it is.
        site: String,
        /// Its port.
        port: u16,
    },
    /// It has ended.
    Stopped,
    /// A transfer arrived.
    Done {
        /// Who received it.
        to: String,
        /// By which controller.
        controller: String,
        /// Payload over the whole time.
        goodput: Rate,
        /// The whole time.
        duration: Span,
    },
    /// A transfer did not come about.
    Failed {
        /// Who was to receive it.
        to: String,
        /// By which controller.
        controller: String,
        /// Why.
        trouble: Trouble,
    },
    /// A transfer began after the slot of another had begun.
    Queued {
        /// Who received it.
        to: String,
        /// By which controller.
        controller: String,
        /// How long after its own.
        by: Span,
    },
    /// Somebody called who was not let in.
    Rejected {
        /// From where.
        from: IpAddr,
        /// Why.
        reason: String,
    },
    /// Records cannot be kept.
    NotKept {
        /// Why.
        reason: String,
    },
    /// Records are kept again.
    Kept {
        /// How many were lost meanwhile.
        lost: u64,
    },
    /// The account of bytes cannot be written: nothing is sent.
    NoAccount {
        /// Why.
        reason: String,
    },
    /// Records could not be given to or taken from a site.
    NotPulled {
        /// Which.
        site: String,
        /// Why.
        reason: String,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Started { site, port } => write!(f, "site {site} runs on port {port}"),
            Event::Stopped => f.write_str("stopped"),
            Event::Done { to, controller, goodput, duration } => {
                let (mbit, seconds) = (goodput.as_bits_per_sec_f64() / 1e6, duration.as_secs_f64());
                write!(f, "to {to} by {controller}: {mbit:.1} mbit in {seconds:.3} s")
            }
            Event::Failed { to, controller, trouble } => {
                write!(f, "to {to} by {controller}: {}", trouble.in_words())
            }
            Event::Queued { to, controller, by } => {
                let seconds = by.as_secs_f64();
                write!(
                    f,
                    "to {to} by {controller}: began {seconds:.1} s late, transfers do not fit into their slots"
                )
            }
            Event::Rejected { from, reason } => write!(f, "not let in from {from}: {reason}"),
            Event::NotKept { reason } => {
                write!(f, "records are lost: {reason}; what was kept before stays, and the node runs on")
            }
            Event::Kept { lost } => write!(f, "records are kept again; {lost} were lost"),
            Event::NoAccount { reason } => {
                write!(f, "the account of bytes cannot be written, so nothing is sent: {reason}")
            }
            Event::NotPulled { site, reason } => write!(f, "no records from or to {site}: {reason}"),
        }
    }
}

impl Trouble {
    /// In a word, as tables and metrics have it.
    pub fn name(self) -> &'static str {
        match self {
            Trouble::Unreachable => "unreachable",
            Trouble::Refused => "refused",
            Trouble::NotAMember => "not-a-member",
            Trouble::Version => "version",
            Trouble::LargePacketsVanish => "large-packets-vanish",
            Trouble::Stalled => "stalled",
            Trouble::TooSlow => "too-slow",
            Trouble::Broken => "broken",
            Trouble::SenderBudget => "sender-budget",
            Trouble::ReceiverBudget => "receiver-budget",
            Trouble::NoSuchController => "no-such-controller",
            Trouble::NoTurn => "no-turn",
        }
    }

    /// In a line.
    pub fn in_words(self) -> &'static str {
        match self {
            Trouble::Unreachable => "unreachable: no connection within the time allowed",
            Trouble::Refused => "refused: nobody listens, or it has as many connections as it takes",
            Trouble::NotAMember => {
                "not a member: the other end is not who the mesh file says, or has another key"
            }
            Trouble::Version => "another version of the protocol",
            Trouble::LargePacketsVanish => {
                "large packets vanish: small messages arrive, full segments do not"
            }
            Trouble::Stalled => "stalled: bytes went out, and nothing more was acknowledged",
            Trouble::TooSlow => "too slow: it moved, but not to its end within the time allowed",
            Trouble::Broken => "the connection broke",
            Trouble::SenderBudget => "this site's budget of the day is spent",
            Trouble::ReceiverBudget => "the other site's budget of the day is spent",
            Trouble::NoSuchController => "this kernel has no such controller, or the node may not use it",
            Trouble::NoTurn => "one of the two was busy with other transfers all the time",
        }
    }
}
