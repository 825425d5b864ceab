#!/usr/bin/python
from __future__ import annotations

DOCUMENTATION = r"""
module: export
short_description: The exporter of a host's TCP connections for Prometheus
description:
  - Enables and starts C(fullpipe-export.service) with these options, or stops and disables it. The package brings the unit.
options:
  state:
    description: Whether the service is enabled and runs.
    type: str
    choices: [present, absent]
    default: present
  options:
    description: What follows C(fullpipe export) on its command line, one line without quotes.
    type: str
    default: ""
  root:
    description: Treat this directory as the root of the host, an image in which nothing runs.
    type: path
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
"""

EXAMPLES = r"""
- fullpipe.host.export:
    options: --by unit
"""

from ansible_collections.fullpipe.host.plugins.module_utils.service import main

main("export")
