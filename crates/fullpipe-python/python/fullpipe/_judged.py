"""What is held against others' word: the IETF draft's example cases, and captures."""

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
    """A controller against the example test cases of draft-ietf-ccwg-bbr, as `fullpipe conformance --cc CC --set KEY=VALUE`: a dictionary
    for each case on each of its paths, with `case`, `heading`, `rate`, `rtt`, `passed` and `failures`.

    >>> all(row["passed"] for row in fullpipe.conformance())
    True
    >>> broken = fullpipe.conformance(settings={"beta_percent": 50})
    """
    named = [cases] if isinstance(cases, str) else list(cases)
    given = [(key, str(value)) for key, value in (settings or {}).items()]
    return json.loads(_fullpipe.conformance(cc, named, given, threads))["runs"]


def trace(path: str | os.PathLike[str], *, at: str | None = None, controllers: bool = False) -> list[dict[str, Any]]:
    """The TCP connections of a capture (pcap or pcapng, also compressed), as `fullpipe trace --json`: a dictionary each, of the form
    `fullpipe/connection/1` (`fullpipe schema connection` describes it).

    `at` says where it was taken ("client", "server", "between") if that is not to be concluded. With `controllers` the controller of
    each sender is concluded by simulating those that are known: a second or more for each. Of a damaged file what could be read is given,
    with a warning that says where it breaks off.

    >>> pandas.json_normalize(fullpipe.trace("x.pcap"))
    """
    text, damage = _fullpipe.trace(path, at, controllers)
    if damage is not None:
        warnings.warn(f"{os.fspath(path)} is damaged {damage}", stacklevel=2)
    return json.loads(text)["connections"]
