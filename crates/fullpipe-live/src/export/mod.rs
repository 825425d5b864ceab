//! Prometheus metrics of the host's connections: counters and histograms by controller and class,
//! never per connection.
//!
//! A [`Tally`] accumulates samples, a [`Page`] is one exposition, and a [`Server`] serves it. A
//! scrape costs only its bytes: the kernel is queried once per interval, whatever the number of
//! scrapers.

mod classes;
mod family;
mod histogram;
mod negotiation;
mod processor;
mod protobuf;
mod server;
mod tally;

pub use classes::{Classes, GroupBy};
pub use family::{Family, Kind, Metric, Page, Sample, Value};
pub use histogram::Histogram;
pub use negotiation::{Form, negotiate};
pub use server::{Pages, Server, ServerError, Settings, Stopper, Tls};
pub use tally::{MAX_PAIRS, Tally};
