//! Loss models, one file per model.
//!
//! To add a model, add a file here and a line in [`loss_models!`](self); scenario files, schema and
//! engines then support it.

mod bernoulli;
mod gilbert_elliott;
mod list;

use fullpipe_units::{Fraction, Time};
use serde::{Deserialize, Serialize};

use crate::build::LinkError;
use crate::random::Stream;

pub(crate) use bernoulli::Bernoulli;
pub use bernoulli::BernoulliSpec;
pub use gilbert_elliott::GilbertElliottSpec;
pub use list::ListSpec;

/// The interface of a loss model's specification.
pub(crate) trait LossKind {
    /// One line for help texts.
    const ABOUT: &'static str;
    /// The running model.
    type Model: LossModel;
    /// Builds the model, or returns the invalid key.
    fn build(&self, random: Stream) -> Result<Self::Model, LinkError>;
    /// The share of packets lost in the long run, if the model has one.
    fn mean(&self) -> Option<f64>;
}

/// Decides which packets are lost, in their order.
pub(crate) trait LossModel {
    /// Whether the packet that passes at `at` is lost.
    fn loses(&mut self, at: Time) -> bool;
}

macro_rules! loss_models {
    ($($(#[$doc:meta])* $Kind:ident($Spec:ty);)+) => {
        /// Which packets are lost. Written as a share (`"1%"`) or as a table with a `kind`.
        #[derive(Clone, PartialEq, Debug, Serialize, Deserialize, schemars::JsonSchema)]
        #[serde(tag = "kind", rename_all = "kebab-case")]
        pub enum LossSpec { $($(#[$doc])* $Kind($Spec),)+ }

        impl LossSpec {
            /// Every kind: its name in scenario files, and one line about it.
            pub fn kinds() -> impl Iterator<Item = (String, &'static str)> {
                [$((crate::kebab::kebab(stringify!($Kind)), <$Spec as LossKind>::ABOUT)),+].into_iter()
            }

            /// The share of packets lost in the long run (0 to 1), if the model has one.
            pub fn mean(&self) -> Option<f64> {
                match self { $(LossSpec::$Kind(spec) => spec.mean(),)+ }
            }

            pub(crate) fn build(&self, random: Stream) -> Result<Loss, LinkError> {
                match self { $(LossSpec::$Kind(spec) => spec.build(random).map(Loss::$Kind),)+ }
            }
        }

        /// A running loss model.
        pub(crate) enum Loss { $($Kind(<$Spec as LossKind>::Model),)+ }

        impl Loss {
            #[inline]
            pub fn loses(&mut self, at: Time) -> bool {
                match self { $(Loss::$Kind(model) => model.loses(at),)+ }
            }
        }
    };
}

loss_models! {
    /// Every packet is lost with the same probability, independently.
    Bernoulli(BernoulliSpec);
    /// Losses come in bursts: a chain of a good and a bad state.
    GilbertElliott(GilbertElliottSpec);
    /// Exactly these packets.
    List(ListSpec);
}

impl From<Fraction> for LossSpec {
    fn from(share: Fraction) -> Self {
        LossSpec::Bernoulli(BernoulliSpec { share })
    }
}

impl Loss {
    /// Changes the share of a Bernoulli model; other models stay as they are.
    pub fn set_share(&mut self, share: Fraction) {
        if let Loss::Bernoulli(model) = self {
            model.set_share(share);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_listed_under_its_name() {
        let known: Vec<String> = LossSpec::kinds().map(|(name, _)| name).collect();
        assert_eq!(known, ["bernoulli", "gilbert-elliott", "list"]);
        let e = toml::from_str::<LossSpec>("kind = 'x'").unwrap_err().to_string();
        for (name, about) in LossSpec::kinds() {
            assert!(e.contains(&format!("`{name}`")), "{e}");
            assert!(!about.is_empty());
        }
    }
}
