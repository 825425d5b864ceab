"""The Rust extension of fullpipe."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any

__version__: str

class ScenarioError(ValueError):
    """An invalid scenario or option. `line` and `column` are 0 if there is no position."""

    file: str
    line: int
    column: int
    message: str
    help: str | None

class RunError(RuntimeError):
    """A run failed."""

class Table:
    """A table with the Arrow PyCapsule interface: pandas, polars, DuckDB and pyarrow read it without a copy."""

    @property
    def columns(self) -> list[str]:
        """Names of the columns; each ends with its unit."""

    def __len__(self) -> int: ...
    def __getitem__(self, name: str) -> list[Any]:
        """A column as a list, with None for missing values."""

    def to_dict(self) -> dict[str, list[Any]]:
        """All columns as lists."""

    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

class Cases:
    """The runs of a scenario, with its sweep and repeats resolved."""

    @property
    def title(self) -> str:
        """Title of the runs."""

    @property
    def labels(self) -> list[str]:
        """Label of each run."""

    @property
    def scenarios(self) -> list[str]:
        """Each run as a scenario file with its seed."""

    @property
    def varied(self) -> list[dict[str, str]]:
        """Values of the swept parameters of each run, and its seed if it is repeated."""

    @property
    def costs(self) -> list[float]:
        """Estimated cost of each run, in packets."""

    def __len__(self) -> int: ...

class Results:
    """Results of runs. The same seed gives the same bytes as on the command line."""

    @property
    def title(self) -> str:
        """Title of the runs."""

    @property
    def numbers(self) -> list[int]:
        """Number of each run in the whole sweep."""

    @property
    def fairness(self) -> float | None:
        """Jain's fairness index over the goodputs of flows that shared a path; None if none did."""

    @property
    def verdict(self) -> str:
        """The conclusion in a sentence."""

    def runs(self) -> Table:
        """One row per run."""

    def flows(self) -> Table:
        """One row per flow."""

    def series(self) -> Table:
        """One row per sample of a flow or a link."""

    def states(self) -> Table:
        """One row per state change of a controller."""

    def to_json(self) -> bytes:
        """All results as JSON, as `--out FILE.json` writes."""

    def report(self, path: str | PathLike[str]) -> None:
        """Write a report in the format of the extension: html, json, csv, parquet, png, svg, qlog."""

    def table(self, width: int = 100) -> str:
        """The table that the command line prints."""

    @staticmethod
    def from_json(json: bytes, title: str = "", numbers: Sequence[int] | None = None) -> Results:
        """Read JSON written by `to_json` or the command line."""

    @staticmethod
    def join(title: str, parts: Sequence[Results]) -> Results:
        """Join parts, with the runs in the order of their numbers."""

    def __len__(self) -> int: ...

class Episode:
    """A run simulated step by step. Flows with the controller `agent` are controlled from outside."""

    FEATURES: list[str]
    """Names of the measurements after a step, in order."""

    def __init__(self, cases: Cases, number: int = 0, seed: int | None = None) -> None: ...
    @property
    def labels(self) -> list[str]:
        """Labels of the agents' flows."""

    @property
    def time_s(self) -> float:
        """Simulated time, in seconds."""

    @property
    def duration_s(self) -> float:
        """Duration of the scenario, in seconds."""

    @property
    def done(self) -> bool:
        """Whether the scenario has ended, or all its flows."""

    def step(self, actions: Sequence[tuple[float, float | None] | None], duration: float) -> list[list[float]]:
        """Set the window (bytes) and pacing rate (bit/s) of each agent, simulate `duration` seconds, and return the measurements."""

    def finish(self) -> Results:
        """End the episode and return its results."""

class Driver:
    """Flows controlled by policies, in steps of a round trip or a fixed time."""

    def __init__(
        self,
        cases: Cases,
        seed: int,
        action: str,
        max_window: float,
        rates: tuple[float, ...],
        step: float | None,
        number: int = 0,
    ) -> None: ...
    @property
    def extremes(self) -> tuple[float, float]:
        """Maximum delivery rate (bit/s) and minimum RTT (s) of the first agent."""

    @property
    def labels(self) -> list[str]:
        """Labels of the agents' flows."""

    def observation(self) -> list[float]:
        """The current observation of the first agent."""

    def observations(self) -> list[list[float]]:
        """The current observations of all agents."""

    def step(self, first: float, second: float) -> tuple[list[float], list[float], bool, bool]:
        """Apply an action and simulate a step: observation, rewards, whether the episode ended, whether all data was sent."""

    def step_all(self, actions: Sequence[tuple[float, float]]) -> tuple[list[tuple[list[float], list[float], bool]], bool]:
        """Like `step` for several agents; and whether the scenario has timed out."""

    def measurements(self, agent: int = 0) -> list[float]:
        """Measurements of the last step, in the order of `Episode.FEATURES`."""

    def finish(self) -> Results:
        """End the episode and return its results."""

class Policy:
    """A small network of fully connected layers that maps observations to actions."""

    def __new__(
        cls, layers: Sequence[tuple[Sequence[Sequence[float]], Sequence[float]]], activation: str = "tanh", about: str = "",
        action: str = "multiplier",
    ) -> Policy: ...
    @staticmethod
    def from_json(text: str) -> Policy:
        """Parse the JSON of `to_json`."""

    def to_json(self) -> str:
        """The contents of the policy file."""

    @property
    def about(self) -> str:
        """Description."""

    @property
    def action(self) -> str:
        """Kind of action: multiplier, multiplier+pacing."""

    @property
    def activation(self) -> str:
        """Activation between the layers: tanh, relu, softsign."""

    @property
    def layers(self) -> list[tuple[list[list[float]], list[float]]]:
        """Layers: weights and bias."""

    def decide(self, observation: Sequence[float]) -> list[float]:
        """The action for an observation: values from -1 to 1."""

REWARDS: list[str]
OBSERVATIONS: list[str]

def rollout(
    cases: Cases, number: int, seed: int, network: Policy, step: float | None, max_window: float
) -> tuple[list[float], list[float], int]:
    """Simulate a whole episode: the sum and the time-weighted mean of each reward, and the number of steps."""

def parse(text: str, name: str, directory: str | None = None, more: Sequence[str] = ...) -> Cases:
    """Parse a scenario file. `more`: additional controller names."""

def race(controllers: Sequence[str], options: Mapping[str, Any], sweep: Sequence[str]) -> Cases:
    """The runs of a race on one path, with the options of `fullpipe race`."""

def controllers() -> list[tuple[str, str]]:
    """The controllers of the simulator: name and description."""

def quantity(text: str) -> float | None:
    """Parse a quantity such as "100mbit", "40ms", "64k" or "1%" to bit/s, seconds, bytes or a fraction. None if it is not a quantity."""

def conformance(cc: str, names: Sequence[str], settings: Sequence[tuple[str, str]], threads: int) -> str:
    """Simulate test cases of the draft; the JSON of `fullpipe conformance --json`."""

def trace(path: str | PathLike[str], at: str | None = None, controllers: bool = False) -> tuple[str, str | None]:
    """Analyse a capture: the JSON of `fullpipe trace --json`, and the position and reason of damage."""

def figures() -> list[tuple[str, str, str]]:
    """The published figures: id, title and source."""

def figure(id: str) -> dict[str, Any]:
    """Simulate the runs of a figure and check its claims."""

def run(
    cases: Cases,
    numbers: Sequence[int] | None = None,
    threads: int = 0,
    series: bool = True,
    progress: Callable[[float], object] | None = None,
) -> Results:
    """Simulate runs. `progress` is called with the share that is done."""

def run_with(cases: Cases, controllers: Mapping[str, Callable[[int, int], Any]]) -> Results:
    """Simulate runs with controllers written in Python."""
