//! A flow's own link between its sender and the path.

use super::parcels::Parcel;
use fullpipe_experiment::scenario::AccessSpec;
use fullpipe_path::{Direction, Path};

/// The link of the flow `flow`.
pub(crate) struct Access {
    pub(crate) flow: usize,
    /// The way of the flow's data.
    pub(crate) way: Direction,
    /// What the flow is called.
    pub(crate) label: String,
    pub(crate) spec: AccessSpec,
    pub(crate) link: Path<Parcel>,
}
