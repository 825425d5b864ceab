//! Policy networks for Python.

use fullpipe_policy::{Action, Activation, Layer, Network, NetworkError, OBSERVATIONS};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// A small network of fully connected layers that maps observations to actions. Scenarios use it
/// with `cc = "policy:FILE.json"`.
#[pyclass(frozen, module = "fullpipe._fullpipe", subclass)]
pub struct Policy(Network);

impl Policy {
    pub fn network(&self) -> &Network {
        &self.0
    }
}

fn value_error(e: NetworkError) -> PyErr {
    PyValueError::new_err(e.to_string())
}

#[pymethods]
impl Policy {
    /// `layers`: pairs of weights (one row per output) and bias. `activation` (tanh, relu,
    /// softsign) is applied between layers. The last layer has one output for
    /// `action="multiplier"` and two for "multiplier+pacing", each clipped to [-1, 1].
    #[new]
    #[pyo3(signature = (layers, activation="tanh", about=String::new(), action="multiplier"))]
    fn new(
        layers: Vec<(Vec<Vec<f32>>, Vec<f32>)>,
        activation: &str,
        about: String,
        action: &str,
    ) -> PyResult<Policy> {
        let Some(action) = Action::ALL.into_iter().find(|known| known.name() == action) else {
            let known = Action::ALL.map(Action::name).join(", ");
            return Err(PyValueError::new_err(format!("action must be one of {known}, got \"{action}\"")));
        };
        let Some(activation) = Activation::ALL.into_iter().find(|known| known.name() == activation) else {
            let known = Activation::ALL.map(Activation::name).join(", ");
            return Err(PyValueError::new_err(format!(
                "activation must be one of {known}, got \"{activation}\""
            )));
        };
        let layers = layers.into_iter().map(|(weights, bias)| Layer { weights, bias }).collect();
        Network::new(about, action, activation, layers).map(Policy).map_err(value_error)
    }

    /// Parses the JSON of [`to_json`](Self::to_json).
    #[staticmethod]
    fn from_json(text: &str) -> PyResult<Policy> {
        text.parse().map(Policy).map_err(value_error)
    }

    /// The contents of the policy file.
    fn to_json(&self) -> String {
        self.0.to_json()
    }

    /// Description.
    #[getter]
    fn about(&self) -> &str {
        self.0.about()
    }

    /// Activation between the layers: tanh, relu, softsign.
    #[getter]
    fn activation(&self) -> &'static str {
        self.0.activation().name()
    }

    /// Layers: weights and bias.
    #[getter]
    fn layers(&self) -> Vec<(Vec<Vec<f32>>, Vec<f32>)> {
        self.0.layers().iter().map(|layer| (layer.weights.clone(), layer.bias.clone())).collect()
    }

    /// Kind of action: multiplier, multiplier+pacing.
    #[getter]
    fn action(&self) -> &'static str {
        self.0.action().name()
    }

    /// The action for an observation: values from -1 to 1.
    fn decide(&self, observation: [f64; OBSERVATIONS.len()]) -> Vec<f64> {
        self.0.decide(&observation)[..self.0.action().values()].to_vec()
    }
}
