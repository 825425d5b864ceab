//! Which congestion controller a sender runs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a connection says of its sender's congestion controller.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Sender {
    /// The controller; none where nothing is sure enough to be named.
    pub name: Option<String>,
    /// The answer in words, with how sure it is, or why there is none.
    pub words: String,
    /// How likely each candidate is, the likeliest first; what none of them explains comes last. Empty where too little
    /// was seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub likelihoods: Vec<Likelihood>,
    /// What convinced: what was seen beside what the two likeliest would have done.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<String>,
}

/// How likely a controller is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Likelihood {
    /// Its name, or `none of these`.
    pub name: String,
    /// 0 to 1.
    pub share: f64,
}
