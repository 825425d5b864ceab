"""Many runs: on this machine's cores, or wherever an executor takes them."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import _fullpipe
from ._executors import in_a_batch, submitter, workers
from ._fullpipe import RunError, ScenarioError
from ._run import Progress, Results, Scenario, _shown

# Parts for each worker: enough that one slow part does not keep all waiting, few enough that sending them costs nothing.
PARTS_A_WORKER = 16
# Runs of a part that is written to disk: what a stop may lose.
RUNS_A_FILE = 256
# How often a part is given away again that was lost with its worker.
AGAIN = 2


def _part(text: str, name: str, directory: str | None, numbers: list[int], series: bool) -> _fullpipe.Results:
    """The runs with these numbers: what a worker does. One thread, for workers are as many as there are cores."""
    cases = _fullpipe.parse(text, name, directory, [])
    return _fullpipe.run(cases, numbers, 1, series, None)


class DataSet:
    """What a sweep wrote: Parquet files, a directory for each value of the first swept key, a row a run."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)

    def table(self) -> Any:
        """All rows, in the order of the runs, as a pyarrow table."""
        import pyarrow.dataset

        return pyarrow.dataset.dataset(self.path / "runs", format="parquet").to_table().sort_by("run")

    def __repr__(self) -> str:
        return f"<fullpipe.DataSet {self.path}>"


def sweep(
    scenario: str | os.PathLike[str] | Mapping[str, Any] | Scenario,
    axes: Mapping[str, Iterable[Any]] | None = None,
    *,
    repeats: int | None = None,
    executor: Any = None,
    out: str | os.PathLike[str] | None = None,
    series: bool = False,
    progress: bool | Progress | None = None,
) -> Results | DataSet:
    """Every combination of the values of `axes` (dotted keys of the scenario: `path.loss`, `flow.cc`), each `repeats` times with seeds
    counting up.

    Without an `executor` on all cores of this machine. With one in parts of one estimated cost: anything with `submit` as
    concurrent.futures has it (ProcessPoolExecutor), a dask.distributed client, the module `ray`, or a `joblib.Parallel`. A part whose
    worker is lost is made again; if the executor itself is broken, what is left is made here. The numbers do not depend on who made
    them.

    With `out` nothing is kept in memory but the part under way: each part becomes Parquet files as soon as it is there (needs pyarrow),
    whole or not at all, and a sweep that is called again makes only what is missing.

    >>> fullpipe.sweep("wan.toml", {"path.loss": ["0.1%", "1%"], "flow.cc": ["bbr", "cubic"]}, repeats=10)
    """
    chosen = Scenario(scenario)
    if axes is not None or repeats is not None:
        swept = {key: list(values) for key, values in axes.items()} if axes is not None else None
        chosen = chosen.replace(sweep=swept, repeats=repeats)
    cases = chosen.cases()
    shown = _shown(progress)
    if executor is None and out is None:
        return Results(_fullpipe.run(cases, None, 0, series, shown))

    data = _Written(Path(out), chosen, cases) if out is not None else None
    numbers = [n for n in range(len(cases)) if data is None or n not in data.done]
    parts = _parts(numbers, cases.costs, workers(executor), data is not None)
    done, made = len(cases) - len(numbers), []
    for part in _made(chosen, parts, executor, series):
        if data is not None:
            data.add(part)
        else:
            made.append(part)
        done += len(part)
        if shown is not None:
            shown(done / max(1, len(cases)))
    if data is not None:
        return DataSet(data.path)
    return Results(_fullpipe.Results.join(cases.title, made))


def _parts(numbers: Sequence[int], costs: Sequence[float], workers: int, to_disk: bool) -> list[list[int]]:
    """Runs in a row, cut where their costs add up to a part's."""
    if not numbers:
        return []
    each = sum(costs[n] for n in numbers) / (workers * PARTS_A_WORKER)
    parts: list[list[int]] = [[]]
    cost = 0.0
    for n in numbers:
        full = parts[-1] and (cost + costs[n] / 2 > each or (to_disk and len(parts[-1]) >= RUNS_A_FILE))
        # A part is in a row: its file is named by its first and its last run.
        if full or (parts[-1] and parts[-1][-1] + 1 != n):
            parts.append([])
            cost = 0.0
        parts[-1].append(n)
        cost += costs[n]
    return parts


def _made(scenario: Scenario, parts: list[list[int]], executor: Any, series: bool) -> Iterator[_fullpipe.Results]:
    """The parts as they were made, in their order."""
    directory = None if scenario.directory is None else os.path.abspath(scenario.directory)
    task = (scenario.text, scenario.name, directory)
    if executor is None:
        cases = scenario.cases()
        for part in parts:
            yield _fullpipe.run(cases, part, 0, series, None)
        return
    batch = in_a_batch(executor)
    if batch is not None:
        yield from _made_in_batches(batch, task, parts, series)
        return
    executor = submitter(executor)
    futures = [executor.submit(_part, *task, part, series) for part in parts]
    broken = False
    try:
        for part, future in zip(parts, futures):
            tries = 0
            while True:
                try:
                    yield _part(*task, part, series) if broken else future.result()
                    break
                except (ScenarioError, RunError):
                    raise
                except Exception as e:  # noqa: BLE001: each executor has exceptions of its own for workers that are gone
                    if broken:
                        raise
                    tries += 1
                    if tries <= AGAIN:
                        try:
                            future = executor.submit(_part, *task, part, series)
                            continue
                        except Exception:  # noqa: BLE001
                            pass
                    _warn_made_here(part, e)
                    broken = True
    finally:
        for future in futures:
            future.cancel()


def _made_in_batches(batch: Any, task: tuple[Any, ...], parts: list[list[int]], series: bool) -> Iterator[_fullpipe.Results]:
    """The same by one that takes all parts at once: what a lost worker leaves is given to it again, and then made here."""
    left = list(parts)
    for tries in range(AGAIN + 1):
        try:
            for made in batch(_part, [(*task, part, series) for part in left]):
                # A joblib.Parallel that lost a worker begins its next call with what it still has of the broken one.
                if left and made.numbers == left[0]:
                    yield made
                    left.pop(0)
            if not left:
                return
            raise ValueError(f"{len(left)} parts of {len(parts)} are missing from what it gave")
        except (ScenarioError, RunError):
            raise
        except Exception as e:  # noqa: BLE001: as above
            if tries == AGAIN:
                _warn_made_here(left[0], e)
    for part in left:
        yield _part(*task, part, series)


def _warn_made_here(part: list[int], e: Exception) -> None:
    warnings.warn(
        f"the executor does not give runs {part[0]} to {part[-1]} ({e!r}): what is left is made here", RuntimeWarning, stacklevel=4
    )


class _Written:
    """A directory that a sweep is written to."""

    def __init__(self, path: Path, scenario: Scenario, cases: _fullpipe.Cases):
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError as e:
            raise ImportError("`out` writes Parquet by pyarrow: pip install 'fullpipe[parquet]'") from e
        self.path = path
        self.key = next(iter(scenario.to_dict().get("sweep") or {}), None)
        self.runs, self.marks = path / "runs", path / "done"
        self.runs.mkdir(parents=True, exist_ok=True)
        self.marks.mkdir(exist_ok=True)
        same = hashlib.sha256(f"{_fullpipe.__version__}\n{scenario.text}".encode()).hexdigest()
        kept = path / "scenario.sha256"
        if not kept.exists():
            _whole(path / "scenario.toml", scenario.text.encode())
            _whole(kept, same.encode())
        elif kept.read_text() != same:
            raise ValueError(f"{path} holds another sweep (see {path / 'scenario.toml'}): choose another directory")
        self.done: set[int] = set()
        for mark in self.marks.iterdir():
            if not mark.name.startswith("."):
                first, last = mark.name.split("-")
                self.done.update(range(int(first), int(last) + 1))
        if self.done and max(self.done) >= len(cases):
            raise ValueError(f"{self.marks} names runs that the sweep does not have")

    def add(self, part: _fullpipe.Results) -> None:
        """Writes a part: its files first, each whole, then the mark that it is there."""
        import pyarrow
        import pyarrow.parquet

        numbers = part.numbers
        name = f"{numbers[0]:06}-{numbers[-1]:06}"
        table = pyarrow.table(part.runs())
        groups = {"": table}
        if self.key is not None:
            column = table[self.key].to_pylist()
            groups = {
                f"{self.key}={_as_path(value)}": table.filter(pyarrow.array([of == value for of in column]))
                for value in dict.fromkeys(column)
            }
        for place, rows in groups.items():
            directory = self.runs / place
            directory.mkdir(parents=True, exist_ok=True)
            sink = pyarrow.BufferOutputStream()
            # What makes a file depends on its rows alone: who made them, and when, does not show.
            pyarrow.parquet.write_table(rows, sink, compression="snappy")
            _whole(directory / f"part-{name}.parquet", sink.getvalue().to_pybytes())
        _whole(self.marks / name, b"")


def _as_path(value: Any) -> str:
    return "".join(c if c.isalnum() or c in "-_.%" else "_" for c in str(value))


def _whole(path: Path, content: bytes) -> None:
    """A file that is there whole or not at all."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(beside, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
