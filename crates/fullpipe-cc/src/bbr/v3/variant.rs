//! Variants of BBR v3: this crate's reading of the draft, the draft to the letter, and Google's
//! implementation for Linux.

use super::Bbr3;
use crate::registry::Setting;

/// A variant of BBR v3.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Variant {
    /// The draft with the documented decisions where it is open or impractical.
    #[default]
    Draft,
    /// The draft's pseudocode to the letter.
    Letter,
    /// Google's implementation for Linux, as far as a transport outside the kernel can reproduce
    /// it.
    Linux,
}

pub(super) const VARIANT: Setting = Setting {
    key: "variant",
    values: "draft, letter or linux",
    default: "draft",
    about: "the draft with documented decisions, the draft to the letter, or Google's v3 for Linux",
};

impl Variant {
    pub(super) const CHOICES: &[(&str, Variant)] =
        &[("draft", Variant::Draft), ("letter", Variant::Letter), ("linux", Variant::Linux)];
}

impl Bbr3 {
    /// Whether this is the draft to the letter.
    pub(super) fn is_letter(&self) -> bool {
        self.variant == Variant::Letter
    }

    /// Whether this is Google's implementation for Linux.
    pub(super) fn is_linux(&self) -> bool {
        self.variant == Variant::Linux
    }
}
