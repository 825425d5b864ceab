//! Small networks that decide, as Python has them.

use fullpipe_policy::{Activation, Layer, Network, NetworkError, OBSERVATIONS};
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
    /// them. The last has one value: the action of `action="multiplier"`, which is cut to [-1, 1].
    #[new]
    #[pyo3(signature = (layers, activation="tanh", about=String::new()))]
    fn new(layers: Vec<(Vec<Vec<f32>>, Vec<f32>)>, activation: &str, about: String) -> PyResult<Policy> {
        let Some(activation) = Activation::ALL.into_iter().find(|known| known.name() == activation) else {
            let known = Activation::ALL.map(Activation::name).join(", ");
            return Err(PyValueError::new_err(format!("activation=\"{activation}\": it is one of {known}")));
        };
        let layers = layers.into_iter().map(|(weights, bias)| Layer { weights, bias }).collect();
        Network::new(about, activation, layers).map(Policy).map_err(refused)
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

    /// What it makes of an observation: the action, from -1 to 1.
    fn decide(&self, observation: [f64; OBSERVATIONS.len()]) -> f64 {
        self.0.decide(&observation)
    }
}
