//! A small neural network of fully connected layers, stored as JSON.

use crate::observer::OBSERVATIONS;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::str::FromStr;
use std::sync::Arc;

/// Limit on the weights of a network: it is evaluated each round trip and stored in every
/// recording.
pub const MAX_WEIGHTS: usize = 100_000;

/// The schema of policy files.
const SCHEMA: &str = "fullpipe/policy/1";

/// Activation function between two layers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Activation {
    /// The hyperbolic tangent.
    Tanh,
    /// max(x, 0).
    Relu,
    /// x / (1 + |x|).
    Softsign,
}

impl Activation {
    /// All of them.
    pub const ALL: [Activation; 3] = [Activation::Tanh, Activation::Relu, Activation::Softsign];

    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Activation::Tanh => "tanh",
            Activation::Relu => "relu",
            Activation::Softsign => "softsign",
        }
    }

    fn apply(self, x: f64) -> f64 {
        match self {
            Activation::Tanh => libm::tanh(x),
            Activation::Relu => x.max(0.0),
            Activation::Softsign => x / (1.0 + x.abs()),
        }
    }
}

/// A fully connected layer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// One row per output, with one weight per input.
    pub weights: Vec<Vec<f32>>,
    /// One bias per output.
    pub bias: Vec<f32>,
}

/// How the network's outputs are used, each clamped to [-1, 1].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub enum Action {
    /// One output: log2 of the factor applied to the window.
    #[serde(rename = "multiplier")]
    Multiplier,
    /// A second output: log2 of the pacing rate in windows per round trip.
    #[serde(rename = "multiplier+pacing")]
    MultiplierPacing,
}

impl Action {
    /// All of them.
    pub const ALL: [Action; 2] = [Action::Multiplier, Action::MultiplierPacing];

    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Action::Multiplier => "multiplier",
            Action::MultiplierPacing => "multiplier+pacing",
        }
    }

    /// Number of outputs it uses.
    pub fn values(self) -> usize {
        match self {
            Action::Multiplier => 1,
            Action::MultiplierPacing => 2,
        }
    }
}

/// A policy file.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct File {
    /// `fullpipe/policy/1`.
    schema: String,
    /// How it was trained.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    about: String,
    action: Action,
    activation: Activation,
    layers: Vec<Layer>,
}

/// A network from observations to actions. Clones share their weights.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "File", into = "File")]
pub struct Network(Arc<File>);

/// Why a network is invalid.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NetworkError(String);

impl Network {
    /// A network of `layers`, with `activation` after each but the last.
    ///
    /// # Errors
    /// If sizes do not match or a weight is not finite.
    pub fn new(
        about: impl Into<String>,
        action: Action,
        activation: Activation,
        layers: Vec<Layer>,
    ) -> Result<Self, NetworkError> {
        let mut wide = OBSERVATIONS.len();
        let mut weights = 0;
        for (i, layer) in layers.iter().enumerate() {
            let fault = |what: String| Err(NetworkError(format!("layer {i}: {what}")));
            if layer.weights.is_empty() {
                return fault("no rows of weights".to_owned());
            }
            if layer.weights.len() != layer.bias.len() {
                return fault(format!(
                    "{} rows of weights, but {} values of bias",
                    layer.weights.len(),
                    layer.bias.len()
                ));
            }
            if let Some(row) = layer.weights.iter().find(|row| row.len() != wide) {
                return fault(format!("a row of {} weights, expected {wide}", row.len()));
            }
            if layer.weights.iter().flatten().chain(&layer.bias).any(|w| !w.is_finite()) {
                return fault("a weight is not finite".to_owned());
            }
            weights += layer.weights.len() * wide;
            wide = layer.weights.len();
        }
        if weights > MAX_WEIGHTS {
            return Err(NetworkError(format!("{weights} weights, more than {MAX_WEIGHTS}")));
        }
        if layers.is_empty() || wide != action.values() {
            let wanted = match action {
                Action::Multiplier => "expected 1: the change of the window",
                Action::MultiplierPacing => "expected 2: the change of the window, and the pacing rate",
            };
            return Err(NetworkError(format!("the last layer has {wide} outputs, {wanted}")));
        }
        let (schema, about) = (SCHEMA.to_owned(), about.into());
        Ok(Network(Arc::new(File { schema, about, action, activation, layers })))
    }

    /// The description of its training.
    pub fn about(&self) -> &str {
        &self.0.about
    }

    /// How its outputs are used.
    pub fn action(&self) -> Action {
        self.0.action
    }

    /// Its activation function.
    pub fn activation(&self) -> Activation {
        self.0.activation
    }

    /// Its layers, first to last.
    pub fn layers(&self) -> &[Layer] {
        &self.0.layers
    }

    /// Evaluates the network: the outputs of the action, from -1 to 1; zero for an output that the
    /// action does not use.
    pub fn decide(&self, observation: &[f64; OBSERVATIONS.len()]) -> [f64; 2] {
        let mut values = observation.to_vec();
        let File { layers, activation, .. } = &*self.0;
        for (i, layer) in layers.iter().enumerate() {
            let between = i + 1 < layers.len();
            let out = layer.weights.iter().zip(&layer.bias).map(|(row, bias)| {
                let inputs = row.iter().zip(&values);
                let sum = inputs.fold(f64::from(*bias), |sum, (w, x)| sum + f64::from(*w) * x);
                if between { activation.apply(sum) } else { sum }
            });
            values = out.collect();
        }
        // Sums of large weights may overflow to NaN; the window then stays the same.
        let value = |i: usize| values.get(i).copied().filter(|v| !v.is_nan()).unwrap_or(0.0).clamp(-1.0, 1.0);
        [value(0), value(1)]
    }

    /// The policy file's contents.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl TryFrom<File> for Network {
    type Error = NetworkError;

    fn try_from(file: File) -> Result<Self, NetworkError> {
        if file.schema != SCHEMA {
            return Err(NetworkError(format!("expected schema \"{SCHEMA}\", got \"{}\"", file.schema)));
        }
        Network::new(file.about, file.action, file.activation, file.layers)
    }
}

impl From<Network> for File {
    fn from(network: Network) -> File {
        Arc::unwrap_or_clone(network.0)
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    /// Parses a policy file.
    fn from_str(text: &str) -> Result<Self, NetworkError> {
        serde_json::from_str(text).map_err(|e| NetworkError(e.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn layer(rows: usize, columns: usize, weight: f32) -> Layer {
        Layer { weights: vec![vec![weight; columns]; rows], bias: vec![0.25; rows] }
    }

    #[test]
    fn network_evaluates_its_layers() {
        let network = Network::new(
            "",
            Action::Multiplier,
            Activation::Relu,
            vec![layer(2, 8, 0.5), layer(1, 2, -0.125)],
        )
        .unwrap();
        // 0.5 · 8 · 0.25 + 0.25 = 1.25 twice; -0.125 · 2.5 + 0.25 = -0.0625.
        assert_eq!(network.decide(&[0.25; 8]), [-0.0625, 0.0]);
        // Both are below zero and cut off.
        assert_eq!(network.decide(&[-1.0; 8])[0], 0.25);
        assert_eq!(network.decide(&[-1e300; 8])[0], 0.25);
        let steep =
            Network::new("", Action::Multiplier, Activation::Softsign, vec![layer(1, 8, 1e30)]).unwrap();
        assert_eq!([steep.decide(&[1.0; 8])[0], steep.decide(&[-1.0; 8])[0]], [1.0, -1.0]);
        let both =
            Network::new("", Action::MultiplierPacing, Activation::Tanh, vec![layer(2, 8, 0.0)]).unwrap();
        assert_eq!((both.decide(&[1.0; 8]), both.action()), ([0.25, 0.25], Action::MultiplierPacing));
        for (activation, value) in [
            (Activation::Tanh, 0.761_594_155_955_764_9),
            (Activation::Softsign, 0.5),
            (Activation::Relu, 1.0),
        ] {
            assert_eq!(activation.apply(1.0), value);
        }
    }

    #[test]
    fn network_survives_json() {
        let layers = vec![layer(3, 8, 0.1), layer(1, 3, -7e-9)];
        let network = Network::new("by hand", Action::Multiplier, Activation::Tanh, layers).unwrap();
        assert_eq!(network.to_json().parse(), Ok(network));
    }

    #[test]
    fn invalid_networks_are_rejected() {
        let error =
            |layers| Network::new("", Action::Multiplier, Activation::Tanh, layers).unwrap_err().to_string();
        assert_eq!(error(vec![layer(1, 7, 0.0)]), "layer 0: a row of 7 weights, expected 8");
        assert!(error(vec![layer(2, 8, 0.0)]).starts_with("the last layer has 2 outputs"));
        assert!(error(Vec::new()).contains("expected 1:"));
        let one = Network::new("", Action::MultiplierPacing, Activation::Tanh, vec![layer(1, 8, 0.0)]);
        assert!(one.unwrap_err().to_string().contains("expected 2:"));
        assert!(error(vec![layer(1, 8, f32::NAN)]).contains("finite"));
        assert!(error(vec![layer(20_000, 8, 0.0), layer(1, 20_000, 0.0)]).contains("more than"));
        let uneven = Layer { weights: vec![vec![0.0; 8]], bias: Vec::new() };
        assert_eq!(error(vec![uneven]), "layer 0: 1 rows of weights, but 0 values of bias");
        let read = |text: &str| text.parse::<Network>().unwrap_err().to_string();
        assert!(read("{}").contains("missing field `schema`"));
        let file =
            Network::new("", Action::Multiplier, Activation::Tanh, vec![layer(1, 8, 0.0)]).unwrap().to_json();
        assert!(read(&file.replace("policy/1", "policy/9")).contains("policy/9"));
        assert!(read(&file.replace("tanh", "gelu")).contains("softsign"));
        assert!(read(&file.replace("multiplier", "rate")).contains("multiplier"));
    }

    proptest! {
        #[test]
        fn any_observation_gives_a_bounded_decision(
            observation in prop::array::uniform8(any::<f64>()),
            weight in any::<f32>(),
        ) {
            let layers = vec![layer(2, 8, weight), layer(1, 2, weight)];
            if let Ok(network) = Network::new("", Action::Multiplier, Activation::Tanh, layers) {
                prop_assert!(network.decide(&observation).iter().all(|value| (-1.0..=1.0).contains(value)));
            }
        }
    }
}
