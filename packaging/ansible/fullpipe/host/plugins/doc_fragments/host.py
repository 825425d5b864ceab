"""Options of the modules that call the program."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  program:
    description: Path of the program on the host.
    type: path
    default: fullpipe
  root:
    description: Root directory of the host, for an image.
    type: path
"""
