"""Conversion between dictionaries and TOML scenarios."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from typing import Any

BARE = re.compile(r"[A-Za-z0-9_-]+\Z")


def loads(text: str) -> dict[str, Any]:
    """Parse a TOML document."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads(text)


def dumps(table: Mapping[str, Any]) -> str:
    """Write a dictionary as TOML, with one line per top-level key, so that the line of an error identifies the key."""
    return "".join(f"{_key(key)} = {_value(value)}\n" for key, value in table.items() if value is not None)


def _key(key: str) -> str:
    return key if BARE.match(key) else _text(key)


def _text(text: str) -> str:
    # JSON and TOML have the same escapes, except for surrogates.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(key)} = {_value(entry)}" for key, entry in value.items() if entry is not None)
        return "{" + inner + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(entry) for entry in value) + "]"
    if hasattr(value, "tolist"):
        # numpy numbers and arrays.
        return _value(value.tolist())
    if isinstance(value, (int, float)):
        return repr(value)
    raise TypeError(f"a scenario can contain strings, numbers, booleans, lists and tables, not {type(value).__name__}: {value!r}")
