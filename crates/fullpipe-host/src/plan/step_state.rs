//! State of a change's object.

/// State of a change's object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StepState {
    /// The change is not performed.
    Before,
    /// The change is in place.
    After,
    /// The change is partially performed: for example, some queues of a device.
    Partial,
    /// The object was changed since; its current value.
    Other(String),
    /// The object no longer exists (a removed device).
    Gone,
}

impl StepState {
    /// Compares the current state with both; `now` describes a third one.
    pub(super) fn compare(is_after: bool, is_before: bool, now: impl FnOnce() -> String) -> StepState {
        match (is_after, is_before) {
            (true, _) => StepState::After,
            (_, true) => StepState::Before,
            _ => StepState::Other(now()),
        }
    }
}
