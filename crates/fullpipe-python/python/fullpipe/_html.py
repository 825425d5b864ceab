"""HTML representation of results for notebooks."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._run import Results

MAX_ROWS = 40

COLUMNS = [
    ("goodput_bps", "goodput, Mbit/s", 1e-6),
    ("utilization", "link, %", 100.0),
    ("retransmitted_share", "retr, %", 100.0),
    ("rtt_p50_ms", "RTT p50, ms", 1.0),
    ("rtt_p95_ms", "RTT p95, ms", 1.0),
    ("queue_p50_ms", "queue p50, ms", 1.0),
]


def _number(value: Any, scale: float) -> str:
    return "" if value is None else f"{value * scale:.3g}"


def table(results: Results) -> str:
    """A table with one row per run and a sparkline of goodput over time."""
    runs = results.runs().to_dict()
    lines = _sparklines(results)
    head = "".join(f"<th style='text-align:right'>{html.escape(title)}</th>" for _, title, _ in COLUMNS)
    rows = []
    for i, label in enumerate(runs["label"][:MAX_ROWS]):
        cells = "".join(
            f"<td style='text-align:right'>{_number(runs[name][i], scale)}</td>" for name, _, scale in COLUMNS
        )
        rows.append(f"<tr><td>{html.escape(label)}</td>{cells}<td>{lines.get(runs['run'][i], '')}</td></tr>")
    more = len(results) - MAX_ROWS
    below = f"<p>and {more} more: <code>.runs()</code> has all</p>" if more > 0 else ""
    return (
        f"<p>{html.escape(results.verdict)}</p><table><thead><tr><th></th>{head}<th>goodput over time</th></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table>{below}"
    )


def _sparklines(results: Results, width: int = 160, height: int = 24) -> dict[int, str]:
    series = results.series().to_dict()
    if "goodput_bps" not in series:
        return {}
    points: dict[int, dict[str, list[tuple[float, float]]]] = {}
    for run, kind, name, at, rate in zip(
        series["run"], series["kind"], series["name"], series["t_s"], series["goodput_bps"]
    ):
        if kind == "flow" and rate is not None:
            points.setdefault(run, {}).setdefault(name, []).append((at, rate))
    drawn = {}
    for run, flows in list(points.items())[:MAX_ROWS]:
        top = max((rate for flow in flows.values() for _, rate in flow), default=0.0) or 1.0
        end = max((at for flow in flows.values() for at, _ in flow), default=0.0) or 1.0
        lines = []
        for flow in flows.values():
            bins: dict[int, list[float]] = {}
            for at, rate in flow:
                bins.setdefault(int(at / end * (width - 1)), []).append(rate)
            line = " ".join(
                f"{x},{height - 1 - sum(rates) / len(rates) / top * (height - 2):.1f}" for x, rates in sorted(bins.items())
            )
            lines.append(f"<polyline fill='none' stroke='currentColor' points='{line}'/>")
        drawn[run] = f"<svg width='{width}' height='{height}' role='img' aria-label='goodput over time'>{''.join(lines)}</svg>"
    return drawn
