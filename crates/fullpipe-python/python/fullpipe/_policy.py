"""Policies: trained controllers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from . import _fullpipe


class Policy(_fullpipe.Policy):
    """A small network of fully connected layers that maps an observation (`fullpipe.env.OBSERVATIONS`) to an action.

    layers: pairs of weights (one row per output) and bias, as lists, numpy arrays or torch tensors. activation ("tanh", "relu",
    "softsign"): applied between layers. about: a description. action: "multiplier" or "multiplier+pacing", as in the environment.

    Scenarios use a saved policy with `cc = "policy:FILE.json"`, in the simulator and, in the lab, on kernel TCP.
    """

    def __new__(cls, layers: Iterable[tuple[Any, Any]], activation: str = "tanh", about: str = "", action: str = "multiplier") -> Policy:
        """Create a policy from lists, numpy arrays or torch tensors."""
        plain = [(_rows(weights), _list(bias)) for weights, bias in layers]
        return super().__new__(cls, plain, activation, about, action)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Policy:
        """Load a policy file."""
        loaded = _fullpipe.Policy.from_json(Path(path).read_text("utf-8"))
        return Policy(loaded.layers, loaded.activation, loaded.about, loaded.action)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the policy file. An existing file is replaced completely or not at all."""
        from ._sweep import _write_atomically

        _write_atomically(Path(path), self.to_json().encode())

    def __call__(self, observation: Sequence[float]) -> Any:
        """The action for an observation, as accepted by the environment."""
        import numpy

        return numpy.array(self.decide([float(value) for value in observation]), numpy.float32)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Policy, (self.layers, self.activation, self.about, self.action))

    def __repr__(self) -> str:
        sizes = [len(weights) for weights, _ in self.layers]
        return f"<fullpipe.Policy {len(self.layers[0][0][0])}-{'-'.join(map(str, sizes))} {self.activation}>"


def _list(values: Any) -> list[float]:
    values = values.tolist() if hasattr(values, "tolist") else values
    return [float(value) for value in values]


def _rows(weights: Any) -> list[list[float]]:
    return [_list(row) for row in weights]
