"""Trained controllers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from . import _fullpipe


class Policy(_fullpipe.Policy):
    """A small network of fully connected layers: from what `fullpipe.env.OBSERVATIONS` lists to the `action`
    "multiplier" or "multiplier+pacing" of the environment.

    `layers` are pairs of weights (a row for each value that comes out) and bias; `activation` ("tanh", "relu", "softsign") stands between
    them. Its file is what `cc = "policy:FILE.json"` names in a scenario: the simulator runs it, and the lab on kernel TCP.
    """

    def __new__(cls, layers: Iterable[tuple[Any, Any]], activation: str = "tanh", about: str = "", action: str = "multiplier") -> Policy:
        """From what numpy and torch have as well as from lists."""
        plain = [(_rows(weights), _list(bias)) for weights, bias in layers]
        return super().__new__(cls, plain, activation, about, action)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Policy:
        """From a file."""
        made = _fullpipe.Policy.from_json(Path(path).read_text("utf-8"))
        return Policy(made.layers, made.activation, made.about, made.action)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the file, whole or not at all."""
        from ._sweep import _whole

        _whole(Path(path), self.to_json().encode())

    def __call__(self, observation: Sequence[float]) -> Any:
        """The action for an observation, as the environment takes it."""
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
