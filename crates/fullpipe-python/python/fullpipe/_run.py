"""Scenarios in, results out."""

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
    """A scenario: what `fullpipe run` reads (docs/reference/scenarios.md), from a file, its text, or a dictionary of the same form.

    Raises ScenarioError, with `line`, `column` and `help`, where the command line would refuse it.
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
        """Its runs: the sweep and the repeats resolved."""
        return _fullpipe.parse(self.text, self.name, self.directory, self._controllers)

    def to_dict(self) -> dict[str, Any]:
        """The scenario as a dictionary, as TOML has it."""
        self.cases()
        return loads(self.text)

    def replace(self, **changes: Any) -> Scenario:
        """The same with other values of top-level keys (`seed=7`, `repeats=10`, `duration="5s"`, `sweep={…}`)."""
        table = self.to_dict()
        table.update({key: value for key, value in changes.items() if value is not None})
        changed = Scenario(table, self._controllers)
        changed.name, changed.directory = self.name, self.directory
        return changed

    def __repr__(self) -> str:
        return f"<fullpipe.Scenario {self.name}>"


class Results:
    """What came of runs. `runs()`, `flows()`, `series()` and `states()` are tables that frame libraries take without a copy."""

    def __init__(self, inner: _fullpipe.Results):
        self._inner = inner

    def runs(self) -> Table:
        """A row a run: swept keys (as written, and as numbers in `KEY.value`), the path, the figures."""
        return self._inner.runs()

    def flows(self) -> Table:
        """A row a flow."""
        return self._inner.flows()

    def series(self) -> Table:
        """A row a sample of a flow or a link."""
        return self._inner.series()

    def states(self) -> Table:
        """A row each time a controller entered a state."""
        return self._inner.states()

    @property
    def title(self) -> str:
        """What the runs together are called."""
        return self._inner.title

    @property
    def numbers(self) -> list[int]:
        """The number of each run in the whole that it is a part of."""
        return self._inner.numbers

    @property
    def fairness(self) -> float | None:
        """Jain's index over the goodputs of flows that shared a path."""
        return self._inner.fairness

    @property
    def verdict(self) -> str:
        """What came out, in a sentence."""
        return self._inner.verdict

    def to_json(self) -> bytes:
        """Everything, as `fullpipe … --out FILE.json` writes it."""
        return self._inner.to_json()

    def report(self, path: str | os.PathLike[str]) -> None:
        """Writes a report: html, json, csv, parquet, png, svg or qlog, by the extension."""
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
        """Draws a figure or a time series (`rtt_ms`, `cwnd_bytes`, …) with matplotlib: a figure over the swept key, a series over
        time. Gives the axes."""
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
    """A published figure, made again: `passed`, `findings`, the picture."""

    def __init__(self, made: Mapping[str, Any]):
        self.id: str = made["id"]
        self.title: str = made["title"]
        self.source: str = made["source"]
        self.passed: bool = made["passed"]
        self.findings: list[dict[str, Any]] = made["findings"]
        self.notes: list[str] = made["notes"]
        self.svg: str = made["svg"]
        self.png: bytes = made["png"]
        self.results = Results(made["results"])

    def __repr__(self) -> str:
        seen = sum(finding["passed"] for finding in self.findings)
        return f"<fullpipe.Figure {self.id}: {self.title}; {seen} of {len(self.findings)} findings hold>"

    def _repr_png_(self) -> bytes:
        return self.png


def _shown(progress: bool | Progress | None) -> Progress | None:
    """What hears how far runs are: a bar on a terminal by default."""
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
    """Controllers on one path, as `fullpipe race`: its options by the same names, with the same defaults.

    >>> fullpipe.race(["bbr", "cubic:hystart=off"], rate="100mbit", rtt="40ms", loss="1%", seed=7)
    >>> fullpipe.race(["bbr"], sweep={"loss": ["0.1%", "1%", "5%"]}, repeats=5)
    """
    named = [cc] if isinstance(cc, str) else list(cc)
    axes = [f"{key}={','.join(str(value) for value in values)}" for key, values in (sweep or {}).items()]
    given = {key: value for key, value in options.items() if value is not None}
    if engine == "lab":
        words = ["race", *named]
        for key, value in given.items():
            option = "--" + key.replace("_", "-")
            words += [option] if value is True else [] if value is False else [option, str(value)]
        for axis in axes:
            words += ["--sweep", axis]
        return _in_the_lab(words)
    _known(engine)
    cases = _fullpipe.race(named, given, axes)
    return Results(_fullpipe.run(cases, None, threads, series, _shown(progress)))


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
    """Runs a scenario file, its text, or a dictionary of the same form, as `fullpipe run`.

    `controllers` are classes of your own, by the names that the scenario uses. Each is called with the segment size and the initial
    window in bytes, and has `cwnd` (bytes), if it likes `pacing_rate` (bit/s), and `on_ack(event)`, `on_loss(event)`,
    `on_timeout(event)`. They are called for every packet, so they are slow: for learning, not for sweeps.
    """
    chosen = Scenario(scenario, controllers or ())
    if seed is not None or repeats is not None:
        chosen = chosen.replace(seed=seed, repeats=repeats)
    if engine == "lab":
        if controllers:
            raise ValueError("controllers in Python run in the simulator only")
        # The program looks in its working directory for the files that a scenario on standard input names.
        return _in_the_lab(["run", "-"], text=chosen.text, directory=chosen.directory)
    _known(engine)
    cases = chosen.cases()
    if controllers:
        return Results(_fullpipe.run_with(cases, dict(controllers)))
    return Results(_fullpipe.run(cases, None, threads, series, _shown(progress)))


def load(path: str | os.PathLike[str]) -> Results:
    """Results that were written as JSON, here or by `fullpipe … --out FILE.json`."""
    return Results(_fullpipe.Results.from_json(Path(path).read_bytes(), Path(path).stem))


def figure(id: str) -> Figure:
    """A published figure, made again in the simulator and judged, as `fullpipe figure ID`."""
    return Figure(_fullpipe.figure(id))


def figures() -> list[tuple[str, str, str]]:
    """The published figures: id, title, source."""
    return _fullpipe.figures()


def _known(engine: str) -> None:
    if engine != "sim":
        raise ValueError(f'engine="{engine}": it is "sim" (the simulator) or "lab" (kernel TCP, by the program fullpipe)')


def _in_the_lab(words: list[str], text: str = "", directory: str | None = None) -> Results:
    """Kernel TCP is the program's: the lab starts its processes by executing itself again, which an interpreter cannot."""
    named = os.environ.get("FULLPIPE", "fullpipe")
    found = shutil.which(named)
    if found is None:
        raise RunError(
            f"`{named}` is not to be found: the lab is run by the program fullpipe; put it on PATH, or its path into FULLPIPE"
        )
    program = os.path.abspath(found)
    with tempfile.TemporaryDirectory() as out:
        file = Path(out, "results.json")
        made = subprocess.run(
            [program, *words, "--engine", "lab", "--json", "--out", str(file)],
            cwd=directory,
            input=text,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            check=False,
        )
        if not file.exists():
            raise RunError(made.stderr.strip() or f"{program} ended with {made.returncode}")
        return Results(_fullpipe.Results.from_json(file.read_bytes(), " ".join(words)))
