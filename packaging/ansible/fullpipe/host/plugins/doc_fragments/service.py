"""Options of the modules for a service of the package."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  state:
    description: Whether the service is enabled and runs.
    type: str
    choices: [present, absent]
    default: present
  options:
    description: What follows the service's command (C(fullpipe serve), C(fullpipe export)), one line without quotes.
    type: str
    default: ""
  root:
    description: Take this directory for the root of the host, an image in which nothing runs.
    type: path
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
"""
