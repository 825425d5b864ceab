//! Where a host stands between the two states of a change.

/// Which of its two states a change's object is in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StepState {
    /// The change has not been made.
    Before,
    /// The change holds.
    After,
    /// It was stopped half-way: a device's tree between the two states.
    Partial,
    /// Someone changed it since; what is there now.
    Other(String),
    /// The object is gone (a device that was unplugged).
    Gone,
}

impl StepState {
    /// Where an object stands that is in either state, or in another: then it is asked which.
    pub(super) fn compare(is_after: bool, is_before: bool, now: impl FnOnce() -> String) -> StepState {
        match (is_after, is_before) {
            (true, _) => StepState::After,
            (_, true) => StepState::Before,
            _ => StepState::Other(now()),
        }
    }
}
