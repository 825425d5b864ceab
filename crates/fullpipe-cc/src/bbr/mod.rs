//! BBR: paces at the bandwidth it has measured and keeps in flight little more than the path holds.
//!
//! Cardwell, Cheng, Gunn, Hassas Yeganeh, Jacobson, "BBR: Congestion-Based Congestion Control",
//! ACM Queue 14(5), 2016.

pub mod v1;
pub mod v3;
