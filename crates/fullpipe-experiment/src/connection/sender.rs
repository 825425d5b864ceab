//! The congestion controller of a sender.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The identified congestion controller of a sender.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Sender {
    /// The controller, if its probability is at least 80 % and it matches well enough.
    pub name: Option<String>,
    /// The result with its probability; two that are not distinguishable; `none of the known
    /// controllers`; or `cannot tell, because` and the reason.
    pub words: String,
    /// What the path did beyond a constant rate with a drop-tail queue, used alone, with the evidence.
    /// The controller is named less often on such paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<String>,
    /// Likelihood of each candidate that was compared, in descending order, then of none of them.
    /// Empty if too little was observed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub likelihoods: Vec<Likelihood>,
    /// Observations compared with the two likeliest candidates, and the reaction to losses.
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
