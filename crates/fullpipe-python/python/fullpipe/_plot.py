"""Plots with matplotlib."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._run import Results

# The colours of Okabe and Ito, distinct with any kind of colour vision.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442"]
MARKS = ["o", "s", "^", "D", "v", "P", "X", "*"]


def plot(results: Results, what: str, ax: Any) -> Any:
    """Plot a column of `runs()` over the swept parameter, or a time series."""
    from matplotlib import pyplot

    if ax is None:
        ax = pyplot.figure(figsize=(7, 4), layout="constrained").subplots()
    runs = results.runs()
    swept = [key[: -len(".value")] for key in runs.columns if key.endswith(".value")]
    if what in runs.columns and swept:
        _over_sweep(runs.to_dict(), what, swept[0], ax)
    elif what in runs.columns:
        table = runs.to_dict()
        colours = [COLOURS[i % len(COLOURS)] for i in range(len(table["label"]))]
        ax.bar(table["label"], [float("nan") if v is None else v for v in table[what]], color=colours)
        ax.set_ylabel(what)
    else:
        _over_time(results, what, ax)
    return ax


def _over_sweep(table: dict[str, list[Any]], what: str, key: str, ax: Any) -> None:
    values: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for cc, at, value in zip(table["cc"], table[f"{key}.value"], table[what]):
        if at is not None and value is not None:
            values[cc][at].append(value)
    positions = sorted({at for by_value in values.values() for at in by_value})
    for i, (cc, by_value) in enumerate(values.items()):
        xs = sorted(by_value)
        medians = [statistics.median(by_value[x]) for x in xs]
        ax.plot(xs, medians, label=cc, color=COLOURS[i % len(COLOURS)], marker=MARKS[i % len(MARKS)])
        if any(len(by_value[x]) > 1 for x in xs):
            ax.fill_between(xs, [min(by_value[x]) for x in xs], [max(by_value[x]) for x in xs], color=COLOURS[i % len(COLOURS)], alpha=0.2)
    # Use a logarithmic axis for more than one and a half decades.
    if positions and positions[0] > 0 and positions[-1] / positions[0] > 30:
        ax.set_xscale("log")
    ax.set_xlabel(key)
    ax.set_ylabel(what)
    ax.legend()


def _over_time(results: Results, what: str, ax: Any) -> None:
    series = results.series()
    if what not in series.columns:
        columns = sorted(set(series.columns + results.runs().columns))
        raise ValueError(f"no column `{what}`; the columns are {', '.join(columns)}")
    labels = dict(zip(results.runs()["run"], results.runs()["label"]))
    table = series.to_dict()
    lines: dict[tuple[int, str], list[tuple[float, float]]] = defaultdict(list)
    for run, name, at, value in zip(table["run"], table["name"], table["t_s"], table[what]):
        if value is not None:
            lines[(run, name)].append((at, value))
    several = len({name for _, name in lines}) > 1
    for i, ((run, name), points) in enumerate(lines.items()):
        label = f"{labels[run]}, {name}" if several and name not in labels[run] else labels[run]
        ax.plot([at for at, _ in points], [v for _, v in points], label=label, color=COLOURS[i % len(COLOURS)])
    ax.set_xlabel("t_s")
    ax.set_ylabel(what)
    ax.legend()
