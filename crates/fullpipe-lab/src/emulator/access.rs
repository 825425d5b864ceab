//! A flow's access link, between its sender and the path.

use super::frames::FrameSegment;
use fullpipe_experiment::scenario::AccessSpec;
use fullpipe_path::{Direction, Path};

/// The access link of flow `flow`.
pub(crate) struct Access {
    pub(crate) flow: usize,
    /// Direction of the flow's data.
    pub(crate) way: Direction,
    /// Label of the flow.
    pub(crate) label: String,
    pub(crate) spec: AccessSpec,
    pub(crate) link: Path<FrameSegment>,
}
