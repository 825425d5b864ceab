"""Options of the modules that call the program."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  program:
    description: The program on the host.
    type: path
    default: fullpipe
  root:
    description: Take this directory for the root of the host, an image.
    type: path
"""
