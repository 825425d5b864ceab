"""The usual pictures, with matplotlib."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._run import Results

# Okabe and Ito's colours, which people of any colour vision tell apart.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442"]
MARKS = ["o", "s", "^", "D", "v", "P", "X", "*"]


def plot(results: Results, what: str, ax: Any) -> Any:
    """A figure over the swept key, or a series over time."""
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
    found: dict[str, dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for cc, at, value in zip(table["cc"], table[f"{key}.value"], table[what]):
        if at is not None and value is not None:
            found[cc][at].append(value)
    places = sorted({at for of in found.values() for at in of})
    for i, (cc, of) in enumerate(found.items()):
        xs = sorted(of)
        middle = [statistics.median(of[x]) for x in xs]
        ax.plot(xs, middle, label=cc, color=COLOURS[i % len(COLOURS)], marker=MARKS[i % len(MARKS)])
        if any(len(of[x]) > 1 for x in xs):
            ax.fill_between(xs, [min(of[x]) for x in xs], [max(of[x]) for x in xs], color=COLOURS[i % len(COLOURS)], alpha=0.2)
    # Values that span more than a decade and a half are read on a logarithmic axis.
    if places and places[0] > 0 and places[-1] / places[0] > 30:
        ax.set_xscale("log")
    ax.set_xlabel(key)
    ax.set_ylabel(what)
    ax.legend()


def _over_time(results: Results, what: str, ax: Any) -> None:
    series = results.series()
    if what not in series.columns:
        there = sorted(set(series.columns + results.runs().columns))
        raise ValueError(f"nothing is called `{what}`; there are {', '.join(there)}")
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
