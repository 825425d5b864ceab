"""Conformance to the IETF draft, and analysis of captures."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from . import _fullpipe


def conformance(
    cc: str = "bbr3", cases: Iterable[str] = (), *, settings: Mapping[str, Any] | None = None, threads: int = 0
) -> list[dict[str, Any]]:
    """Check a controller against the example test cases of draft-ietf-ccwg-bbr, as `fullpipe conformance --cc CC --set KEY=VALUE`.

    Returns a dictionary for each case on each of its paths, with `case`, `heading`, `rate`, `rtt`, `verdict` (passed, failed, not judged), `failures`
    and `not_judged`.

    >>> all(row["verdict"] == "passed" for row in fullpipe.conformance())
    True
    >>> broken = fullpipe.conformance(settings={"beta_percent": 50})
    """
    names = [cases] if isinstance(cases, str) else list(cases)
    given = [(key, str(value)) for key, value in (settings or {}).items()]
    return json.loads(_fullpipe.conformance(cc, names, given, threads))["runs"]


def trace(path: str | os.PathLike[str], *, at: str | None = None, controllers: bool = False) -> list[dict[str, Any]]:
    """Analyse the TCP connections of a capture (pcap or pcapng, also compressed), as `fullpipe trace --json`.

    Returns a dictionary per connection with the schema `fullpipe/connection/1` (`fullpipe schema connection` describes it).

    at: where the capture was taken ("client", "server", "between"); detected by default. controllers: identify the congestion
    controller of each sender by simulation, which takes a second or more per connection. A damaged file gives the connections before
    the damage and a warning with its position; a capture of more connections than can be listed gives a warning with their number.

    >>> pandas.json_normalize(fullpipe.trace("x.pcap"))
    """
    text, damage = _fullpipe.trace(path, at, controllers)
    if damage is not None:
        warnings.warn(f"{os.fspath(path)} is damaged {damage}", stacklevel=2)
    document = json.loads(text)
    if unlisted := document.get("unlisted"):
        warnings.warn(f"{os.fspath(path)} has {unlisted} connections that are not listed", stacklevel=2)
    return document["connections"]
