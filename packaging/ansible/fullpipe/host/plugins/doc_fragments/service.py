"""Options of the modules that manage a service of the package."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  state:
    description: Whether the service is enabled and running.
    type: str
    choices: [present, absent]
    default: present
  options:
    description: Options of the service's command (C(fullpipe serve), C(fullpipe export)), one line without quotes.
    type: str
    default: ""
  root:
    description: Root directory of the host, for an image in which nothing runs.
    type: path
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
"""
