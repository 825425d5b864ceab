//! Small networks that decide, as Python has them.

use fullpipe_policy::{Action, Activation, Layer, Network, NetworkError, OBSERVATIONS};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// A small network of fully connected layers: from an observation to an action. What `cc = "policy:FILE.json"` names in a scenario.
#[pyclass(frozen, module = "fullpipe._fullpipe", subclass)]
pub struct Policy(Network);

impl Policy {
    pub fn network(&self) -> &Network {
        &self.0
    }
}

fn refused(e: NetworkError) -> PyErr {
    PyValueError::new_err(e.to_string())
}

#[pymethods]
impl Policy {
    /// `layers` are pairs of weights (a row for each value that comes out) and bias; `activation` (tanh, relu, softsign) stands between
    /// them. The last has one value for `action="multiplier"`, two for "multiplier+pacing", each cut to [-1, 1].
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
            return Err(PyValueError::new_err(format!("action=\"{action}\": a policy's is one of {known}")));
        };
        let Some(activation) = Activation::ALL.into_iter().find(|known| known.name() == activation) else {
            let known = Activation::ALL.map(Activation::name).join(", ");
            return Err(PyValueError::new_err(format!("activation=\"{activation}\": it is one of {known}")));
        };
        let layers = layers.into_iter().map(|(weights, bias)| Layer { weights, bias }).collect();
        Network::new(about, action, activation, layers).map(Policy).map_err(refused)
    }

    /// The policy that [`to_json`](Self::to_json) wrote.
    #[staticmethod]
    fn from_json(text: &str) -> PyResult<Policy> {
        text.parse().map(Policy).map_err(refused)
    }

    /// The file.
    fn to_json(&self) -> String {
        self.0.to_json()
    }

    /// How it came to be.
    #[getter]
    fn about(&self) -> &str {
        self.0.about()
    }

    /// What stands between its layers: tanh, relu, softsign.
    #[getter]
    fn activation(&self) -> &'static str {
        self.0.activation().name()
    }

    /// Its layers: weights and bias.
    #[getter]
    fn layers(&self) -> Vec<(Vec<Vec<f32>>, Vec<f32>)> {
        self.0.layers().iter().map(|layer| (layer.weights.clone(), layer.bias.clone())).collect()
    }

    /// What its values say: multiplier, multiplier+pacing.
    #[getter]
    fn action(&self) -> &'static str {
        self.0.action().name()
    }

    /// What it makes of an observation: the values of the action, each from -1 to 1.
    fn decide(&self, observation: [f64; OBSERVATIONS.len()]) -> Vec<f64> {
        self.0.decide(&observation)[..self.0.action().values()].to_vec()
    }
}
