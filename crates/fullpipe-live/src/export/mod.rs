//! The host's connections as metrics: counters and histograms by controller and class, never by connection.
//!
//! A [`Tally`] adds up one look after the other, [`Page`] is what a scrape gets, and [`Server`] hands it out. Scrapes
//! cost nothing but their bytes: the kernel is asked once an interval, however many ask.

mod classes;
mod family;
mod histogram;
mod negotiation;
mod processor;
mod protobuf;
mod server;
mod tally;

pub use classes::{By, Classes};
pub use family::{Family, Kind, Metric, Page, Sample, Value};
pub use histogram::Histogram;
pub use negotiation::{Form, wanted};
pub use server::{Pages, Server, ServerError, Settings, Stopper, Tls};
pub use tally::{MOST_PAIRS, Tally};
