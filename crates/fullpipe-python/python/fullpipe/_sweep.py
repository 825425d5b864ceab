"""Sweeps on the local cores or on an executor."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import _fullpipe
from ._executors import as_batch_runner, as_submitter, worker_count
from ._fullpipe import RunError, ScenarioError
from ._run import Progress, Results, Scenario, _progress_callback

# Parts per worker: enough to balance slow parts, few enough to keep the overhead small.
PARTS_PER_WORKER = 16
# Maximum runs of a part that is written to disk; an interrupted sweep loses at most these.
MAX_RUNS_PER_FILE = 256
# Retries of a part whose worker was lost.
MAX_RETRIES = 2


def _part(text: str, name: str, directory: str | None, numbers: list[int], series: bool) -> _fullpipe.Results:
    """Simulate the runs with these numbers in a worker, with one thread as there is one worker per core."""
    cases = _fullpipe.parse(text, name, directory, [])
    return _fullpipe.run(cases, numbers, 1, series, None)


class DataSet:
    """The output of a sweep: Parquet files with one row per run, in a directory for each value of the first swept parameter."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)

    def table(self) -> Any:
        """All rows in the order of the runs, as a pyarrow table."""
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
    """Run every combination of the values of `axes` (dotted keys of the scenario, as `path.loss`, `flow.cc`), each `repeats` times with
    consecutive seeds.

    executor: by default all local cores. Otherwise anything with `submit` like concurrent.futures (ProcessPoolExecutor), a
    dask.distributed client, the module `ray`, or a `joblib.Parallel`; it gets parts of equal estimated cost. A part whose worker is
    lost is retried; if the executor itself is broken, the remaining parts run locally. The results do not depend on the executor.

    out: a directory for Parquet files (needs pyarrow). Each part is written atomically when it is complete, and only the current part
    is in memory. The same call resumes an interrupted sweep.

    >>> fullpipe.sweep("wan.toml", {"path.loss": ["0.1%", "1%"], "flow.cc": ["bbr", "cubic"]}, repeats=10)
    """
    chosen = Scenario(scenario)
    if axes is not None or repeats is not None:
        swept = {key: list(values) for key, values in axes.items()} if axes is not None else None
        chosen = chosen.replace(sweep=swept, repeats=repeats)
    cases = chosen.cases()
    callback = _progress_callback(progress)
    if executor is None and out is None:
        return Results(_fullpipe.run(cases, None, 0, series, callback))

    data = _OutputDirectory(Path(out), chosen, cases) if out is not None else None
    numbers = [n for n in range(len(cases)) if data is None or n not in data.done]
    parts = _parts(numbers, cases.costs, worker_count(executor), data is not None)
    done, results = len(cases) - len(numbers), []
    for part in _run_parts(chosen, parts, executor, series):
        if data is not None:
            data.add(part)
        else:
            results.append(part)
        done += len(part)
        if callback is not None:
            callback(done / max(1, len(cases)))
    if data is not None:
        return DataSet(data.path)
    return Results(_fullpipe.Results.join(cases.title, results))


def _parts(numbers: Sequence[int], costs: Sequence[float], workers: int, to_disk: bool) -> list[list[int]]:
    """Split consecutive runs into parts of equal cost."""
    if not numbers:
        return []
    each = sum(costs[n] for n in numbers) / (workers * PARTS_PER_WORKER)
    parts: list[list[int]] = [[]]
    cost = 0.0
    for n in numbers:
        full = parts[-1] and (cost + costs[n] / 2 > each or (to_disk and len(parts[-1]) >= MAX_RUNS_PER_FILE))
        # The runs of a part are consecutive: its file is named by the first and the last.
        if full or (parts[-1] and parts[-1][-1] + 1 != n):
            parts.append([])
            cost = 0.0
        parts[-1].append(n)
        cost += costs[n]
    return parts


def _run_parts(scenario: Scenario, parts: list[list[int]], executor: Any, series: bool) -> Iterator[_fullpipe.Results]:
    """Run the parts and yield their results in order."""
    directory = None if scenario.directory is None else os.path.abspath(scenario.directory)
    task = (scenario.text, scenario.name, directory)
    if executor is None:
        cases = scenario.cases()
        for part in parts:
            yield _fullpipe.run(cases, part, 0, series, None)
        return
    batch = as_batch_runner(executor)
    if batch is not None:
        yield from _run_in_batches(batch, task, parts, series)
        return
    executor = as_submitter(executor)
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
                except Exception as e:  # noqa: BLE001: executors have different exceptions for lost workers
                    if broken:
                        raise
                    tries += 1
                    if tries <= MAX_RETRIES:
                        try:
                            future = executor.submit(_part, *task, part, series)
                            continue
                        except Exception:  # noqa: BLE001
                            pass
                    _warn_local(part, e)
                    broken = True
    finally:
        for future in futures:
            future.cancel()


def _run_in_batches(batch: Any, task: tuple[Any, ...], parts: list[list[int]], series: bool) -> Iterator[_fullpipe.Results]:
    """Like _run_parts for executors that take all parts at once: missing parts are retried, and finally run locally."""
    left = list(parts)
    for tries in range(MAX_RETRIES + 1):
        try:
            for result in batch(_part, [(*task, part, series) for part in left]):
                # After losing a worker, joblib.Parallel starts its next call with leftovers of the broken one.
                if left and result.numbers == left[0]:
                    yield result
                    left.pop(0)
            if not left:
                return
            raise ValueError(f"the executor returned {len(parts) - len(left)} of {len(parts)} parts")
        except (ScenarioError, RunError):
            raise
        except Exception as e:  # noqa: BLE001: as above
            if tries == MAX_RETRIES:
                _warn_local(left[0], e)
    for part in left:
        yield _part(*task, part, series)


def _warn_local(part: list[int], e: Exception) -> None:
    warnings.warn(
        f"the executor failed on runs {part[0]} to {part[-1]} ({e!r}): running the remaining parts locally", RuntimeWarning, stacklevel=4
    )


class _OutputDirectory:
    """The output directory of a sweep."""

    def __init__(self, path: Path, scenario: Scenario, cases: _fullpipe.Cases):
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError as e:
            raise ImportError("`out` needs pyarrow: pip install 'fullpipe[parquet]'") from e
        self.path = path
        self.key = next(iter(scenario.to_dict().get("sweep") or {}), None)
        self.runs, self.marks = path / "runs", path / "done"
        self.runs.mkdir(parents=True, exist_ok=True)
        self.marks.mkdir(exist_ok=True)
        digest = hashlib.sha256(f"{_fullpipe.__version__}\n{scenario.text}".encode()).hexdigest()
        digest_file = path / "scenario.sha256"
        if not digest_file.exists():
            _write_atomically(path / "scenario.toml", scenario.text.encode())
            _write_atomically(digest_file, digest.encode())
        elif digest_file.read_text() != digest:
            raise ValueError(f"{path} contains another sweep (see {path / 'scenario.toml'}): choose another directory")
        self.done: set[int] = set()
        for mark in self.marks.iterdir():
            if not mark.name.startswith("."):
                first, last = mark.name.split("-")
                self.done.update(range(int(first), int(last) + 1))
        if self.done and max(self.done) >= len(cases):
            raise ValueError(f"{self.marks} contains runs that the sweep does not have")

    def add(self, part: _fullpipe.Results) -> None:
        """Write a part: its files first, each atomically, then the mark that it is complete."""
        import pyarrow
        import pyarrow.parquet

        numbers = part.numbers
        name = f"{numbers[0]:06}-{numbers[-1]:06}"
        table = pyarrow.table(part.runs())
        groups = {"": table}
        if self.key is not None:
            column = table[self.key].to_pylist()
            groups = {
                f"{self.key}={_as_path(value)}": table.filter(pyarrow.array([entry == value for entry in column]))
                for value in dict.fromkeys(column)
            }
        for place, rows in groups.items():
            directory = self.runs / place
            directory.mkdir(parents=True, exist_ok=True)
            sink = pyarrow.BufferOutputStream()
            # The file depends on its rows only, not on the executor or the time.
            pyarrow.parquet.write_table(rows, sink, compression="snappy")
            _write_atomically(directory / f"part-{name}.parquet", sink.getvalue().to_pybytes())
        _write_atomically(self.marks / name, b"")


def _as_path(value: Any) -> str:
    return "".join(c if c.isalnum() or c in "-_.%" else "_" for c in str(value))


def _write_atomically(path: Path, content: bytes) -> None:
    """Write a file completely or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
