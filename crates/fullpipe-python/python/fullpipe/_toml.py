"""Dictionaries as TOML, which is what scenarios are."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from typing import Any

BARE = re.compile(r"[A-Za-z0-9_-]+\Z")


def loads(text: str) -> dict[str, Any]:
    """A TOML document as a dictionary."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads(text)


def dumps(table: Mapping[str, Any]) -> str:
    """A dictionary as a TOML document of one line a key, tables and lists of tables inline. Each top-level key has its line, so that an
    error's line says which it is."""
    return "".join(f"{_key(key)} = {_value(value)}\n" for key, value in table.items() if value is not None)


def _key(key: str) -> str:
    return key if BARE.match(key) else _text(key)


def _text(text: str) -> str:
    # JSON's escapes are TOML's, but for the surrogates of what is beyond 16 bits.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(key)} = {_value(of)}" for key, of in value.items() if of is not None)
        return "{" + inner + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(of) for of in value) + "]"
    if hasattr(value, "tolist"):
        # numpy's numbers and arrays.
        return _value(value.tolist())
    if isinstance(value, (int, float)):
        return repr(value)
    raise TypeError(f"a scenario holds text, numbers, truth values, lists and tables, not {type(value).__name__}: {value!r}")
