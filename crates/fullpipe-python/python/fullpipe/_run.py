"""Scenarios, runs and results."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from . import _fullpipe
from ._fullpipe import RunError, Table
from ._toml import dumps, loads

Progress = Callable[[float], None]


class Scenario:
    """A scenario (docs/reference/scenarios.md) from a file, its text, or a dictionary of the same structure.

    controllers: additional controller names that the scenario may use. Raises ScenarioError with `line`, `column` and `help` if
    the scenario is invalid.
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | Mapping[str, Any] | Scenario,
        controllers: Iterable[str] = (),
    ):
        self.directory: str | None = None
        if isinstance(source, Scenario):
            self.text, self.name, self.directory = source.text, source.name, source.directory
        elif isinstance(source, Mapping):
            self.text, self.name = dumps(source), "scenario"
        elif isinstance(source, str) and "\n" in source:
            self.text, self.name = source, "scenario"
        else:
            path = Path(source)
            self.text, self.name, self.directory = path.read_text("utf-8"), str(path), str(path.parent)
        self._controllers = list(controllers)

    def cases(self) -> _fullpipe.Cases:
        """The runs of the scenario, with sweep and repeats resolved."""
        return _fullpipe.parse(self.text, self.name, self.directory, self._controllers)

    def to_dict(self) -> dict[str, Any]:
        """The scenario as a dictionary with the structure of the TOML file."""
        self.cases()
        return loads(self.text)

    def replace(self, **changes: Any) -> Scenario:
        """A copy with other values of top-level keys (`seed=7`, `repeats=10`, `duration="5s"`, `sweep={…}`). None is ignored."""
        table = self.to_dict()
        table.update({key: value for key, value in changes.items() if value is not None})
        changed = Scenario(table, self._controllers)
        changed.name, changed.directory = self.name, self.directory
        return changed

    def __repr__(self) -> str:
        return f"<fullpipe.Scenario {self.name}>"


class Results:
    """Results of runs. `runs()`, `flows()`, `series()` and `states()` are tables that data frame libraries read without a copy."""

    def __init__(self, inner: _fullpipe.Results):
        self._inner = inner

    def runs(self) -> Table:
        """One row per run: swept parameters (as written, and as numbers in `KEY.value`), path, and summary."""
        return self._inner.runs()

    def flows(self) -> Table:
        """One row per flow."""
        return self._inner.flows()

    def series(self) -> Table:
        """One row per sample of a flow or a link."""
        return self._inner.series()

    def states(self) -> Table:
        """One row per state change of a controller."""
        return self._inner.states()

    @property
    def title(self) -> str:
        """Title of the runs."""
        return self._inner.title

    @property
    def numbers(self) -> list[int]:
        """Number of each run in the whole sweep."""
        return self._inner.numbers

    @property
    def fairness(self) -> float | None:
        """Jain's fairness index over the goodputs of flows that shared a path; None if none did."""
        return self._inner.fairness

    @property
    def verdict(self) -> str:
        """The conclusion in a sentence."""
        return self._inner.verdict

    def to_json(self) -> bytes:
        """All results as JSON, as `fullpipe … --out FILE.json` writes."""
        return self._inner.to_json()

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write a report in the format of the extension: html, json, csv, parquet, png, svg or qlog."""
        self._inner.report(os.fspath(path))

    def to_pandas(self) -> Any:
        """`runs()` as a pandas data frame."""
        import pandas

        return pandas.DataFrame(self.runs().to_dict())

    def to_polars(self) -> Any:
        """`runs()` as a polars data frame, without a copy."""
        import polars

        return polars.DataFrame(self.runs())

    def plot(self, what: str = "goodput_bps", ax: Any = None) -> Any:
        """Plot a column with matplotlib: one of `runs()` over the swept parameter, or one of `series()` (`rtt_ms`, `cwnd_bytes`, …)
        over time. Returns the axes."""
        from ._plot import plot

        return plot(self, what, ax)

    def __len__(self) -> int:
        return len(self._inner)

    def __repr__(self) -> str:
        return self._inner.table(100)

    def _repr_html_(self) -> str:
        from ._html import table

        return table(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Results, (self._inner,))


class Figure:
    """A reproduced published figure: `passed`, `findings`, `notes`, the picture (`svg`, `png`) and its `results`."""

    def __init__(self, fields: Mapping[str, Any]):
        self.id: str = fields["id"]
        self.title: str = fields["title"]
        self.source: str = fields["source"]
        self.passed: bool = fields["passed"]
        self.findings: list[dict[str, Any]] = fields["findings"]
        self.notes: list[str] = fields["notes"]
        self.svg: str = fields["svg"]
        self.png: bytes = fields["png"]
        self.results = Results(fields["results"])

    def __repr__(self) -> str:
        passed = sum(finding["passed"] for finding in self.findings)
        return f"<fullpipe.Figure {self.id}: {self.title}; {passed} of {len(self.findings)} claims hold>"

    def _repr_png_(self) -> bytes:
        return self.png


def _progress_callback(progress: bool | Progress | None) -> Progress | None:
    """The callback for progress: by default a bar on a terminal."""
    if callable(progress):
        return progress
    if progress is False or (progress is None and not sys.stderr.isatty()):
        return None

    def bar(part: float) -> None:
        full = round(part * 30)
        sys.stderr.write(f"\r{'█' * full}{'·' * (30 - full)} {part:4.0%}" + ("\r\x1b[K" if part >= 1 else ""))
        sys.stderr.flush()

    return bar


def race(
    cc: Iterable[str] | str = (),
    *,
    engine: str = "sim",
    sweep: Mapping[str, Iterable[Any]] | None = None,
    threads: int = 0,
    series: bool = True,
    progress: bool | Progress | None = None,
    **options: Any,
) -> Results:
    """Compare controllers on one path, as `fullpipe race`, with the same options and defaults.

    engine: "sim" (simulator) or "lab" (kernel TCP; needs the program `fullpipe`). threads: 0 uses all cores. series: keep time
    series. progress: True, False, or a function that is called with the share that is done.

    >>> fullpipe.race(["bbr", "cubic:hystart=off"], rate="100mbit", rtt="40ms", loss="1%", seed=7)
    >>> fullpipe.race(["bbr"], sweep={"loss": ["0.1%", "1%", "5%"]}, repeats=5)
    """
    names = [cc] if isinstance(cc, str) else list(cc)
    axes = [f"{key}={','.join(str(value) for value in values)}" for key, values in (sweep or {}).items()]
    given = {key: value for key, value in options.items() if value is not None}
    if engine == "lab":
        args = ["race", *names]
        for key, value in given.items():
            option = "--" + key.replace("_", "-")
            args += [option] if value is True else [] if value is False else [option, str(value)]
        for axis in axes:
            args += ["--sweep", axis]
        return _run_in_lab(args)
    _check_engine(engine)
    cases = _fullpipe.race(names, given, axes)
    return Results(_fullpipe.run(cases, None, threads, series, _progress_callback(progress)))


def run(
    scenario: str | os.PathLike[str] | Mapping[str, Any] | Scenario,
    *,
    engine: str = "sim",
    seed: int | None = None,
    repeats: int | None = None,
    controllers: Mapping[str, Callable[[int, int], Any]] | None = None,
    threads: int = 0,
    series: bool = True,
    progress: bool | Progress | None = None,
) -> Results:
    """Run a scenario file, its text, or a dictionary of the same structure, as `fullpipe run`.

    controllers: Python classes by the names that the scenario uses. Each is called with the segment size and the initial window in
    bytes. It has an attribute `cwnd` (bytes), optionally `pacing_rate` (bit/s), and the methods `on_ack(event)`, `on_loss(event)`,
    `on_timeout(event)`. These are called for every packet, so they are slow: for learning, not for sweeps.
    """
    chosen = Scenario(scenario, controllers or ())
    if seed is not None or repeats is not None:
        chosen = chosen.replace(seed=seed, repeats=repeats)
    if engine == "lab":
        if controllers:
            raise ValueError("Python controllers run in the simulator only")
        # The program resolves files of a scenario on standard input in its working directory.
        return _run_in_lab(["run", "-"], text=chosen.text, directory=chosen.directory)
    _check_engine(engine)
    cases = chosen.cases()
    if controllers:
        return Results(_fullpipe.run_with(cases, dict(controllers)))
    return Results(_fullpipe.run(cases, None, threads, series, _progress_callback(progress)))


def load(path: str | os.PathLike[str]) -> Results:
    """Load results from JSON written by `Results.report` or `fullpipe … --out FILE.json`."""
    return Results(_fullpipe.Results.from_json(Path(path).read_bytes(), Path(path).stem))


def figure(id: str) -> Figure:
    """Reproduce a published figure in the simulator and check its claims, as `fullpipe figure ID`."""
    return Figure(_fullpipe.figure(id))


def figures() -> list[tuple[str, str, str]]:
    """The published figures: id, title, source."""
    return _fullpipe.figures()


def _check_engine(engine: str) -> None:
    if engine != "sim":
        raise ValueError(f'engine must be "sim" (simulator) or "lab" (kernel TCP, run by the program fullpipe), got "{engine}"')


def _run_in_lab(args: list[str], text: str = "", directory: str | None = None) -> Results:
    """Run the program `fullpipe`: the lab re-executes itself, which a Python interpreter cannot."""
    program_name = os.environ.get("FULLPIPE", "fullpipe")
    found = shutil.which(program_name)
    if found is None:
        raise RunError(
            f"`{program_name}` not found: the lab needs the program fullpipe; install it in PATH or set FULLPIPE to its path"
        )
    program = os.path.abspath(found)
    with tempfile.TemporaryDirectory() as out:
        file = Path(out, "results.json")
        done = subprocess.run(
            [program, *args, "--engine", "lab", "--json", "--out", str(file)],
            cwd=directory,
            input=text,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            check=False,
        )
        if not file.exists():
            raise RunError(done.stderr.strip() or f"{program} exited with {done.returncode}")
        return Results(_fullpipe.Results.from_json(file.read_bytes(), " ".join(args)))
