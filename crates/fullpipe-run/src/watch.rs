//! What a caller hears of its runs, and how it stops them.

use fullpipe_units::Span;

/// Hears how far runs are, from whichever thread makes them, and may stop them. `()` hears nothing and stops nothing.
pub trait Watch: Sync {
    /// Whether all is to stop: asked often while a run is under way. What is finished by then is kept.
    fn interrupted(&self) -> bool {
        false
    }

    /// A run came `by` further.
    fn advanced(&self, by: Span) {
        let _ = by;
    }

    /// A run ended, `left` before its scenario did.
    fn finished(&self, left: Span) {
        let _ = left;
    }

    /// A run of so `long` that was finished is made once more.
    fn again(&self, long: Span) {
        let _ = long;
    }
}

impl Watch for () {}
