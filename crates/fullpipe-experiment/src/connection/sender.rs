//! The congestion controller of a sender.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The identified congestion controller of a sender.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Sender {
    /// The controller; `None` if the evidence is insufficient.
    pub name: Option<String>,
    /// The result with its confidence, or the reason why there is none.
    pub words: String,
    /// Likelihood of each candidate in descending order, then of none of them. Empty if too little
    /// was observed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub likelihoods: Vec<Likelihood>,
    /// Observations compared with the two likeliest candidates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
}

/// Likelihood of one controller.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Likelihood {
    /// Its name, or `none of these`.
    pub name: String,
    /// 0 to 1.
    pub share: f64,
}
