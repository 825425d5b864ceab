"""fullpipe: congestion control on simulated paths, from Python.

>>> import fullpipe
>>> results = fullpipe.race(["bbr", "cubic"], rate="20mbit", rtt="40ms", loss="1%", duration="5s")
>>> table = results.runs()          # pandas, polars, DuckDB and pyarrow read it without a copy
>>> table["cc"]
['bbr', 'cubic']

Quantities are written as on the command line ("100mbit", "40ms", "1%", "1bdp"). The same seed gives the same bytes as the
command line.
"""

from __future__ import annotations

from ._fullpipe import RunError, ScenarioError, Table, __version__, controllers, quantity
from ._checks import conformance, trace
from ._policy import Policy
from ._run import Figure, Results, Scenario, figure, figures, load, race, run
from ._sweep import sweep

__all__ = [
    "Figure",
    "Policy",
    "Results",
    "RunError",
    "Scenario",
    "ScenarioError",
    "Table",
    "__version__",
    "conformance",
    "controllers",
    "figure",
    "figures",
    "load",
    "quantity",
    "race",
    "run",
    "sweep",
    "trace",
]


def _register() -> None:
    """Register the environment with gymnasium, if installed."""
    try:
        from gymnasium.envs.registration import register, registry
    except ImportError:
        return
    if "fullpipe/Path-v1" not in registry:
        register(
            id="fullpipe/Path-v1", entry_point="fullpipe.env:PathEnv", vector_entry_point="fullpipe.env:PathVectorEnv"
        )


_register()
del _register
