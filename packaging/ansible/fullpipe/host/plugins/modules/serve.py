#!/usr/bin/python
from __future__ import annotations

DOCUMENTATION = r"""
module: serve
short_description: The measuring server of a host
description:
  - Enables and starts C(fullpipe-serve.service) with these options, or stops and disables it. The package brings the unit.
options:
  state:
    description: Whether the service is enabled and runs.
    type: str
    choices: [present, absent]
    default: present
  options:
    description: What follows C(fullpipe serve) on its command line, one line without quotes.
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
- fullpipe.host.serve:
    options: --max-rate 1gbit --max-time 60s --allow 192.0.2.0/24
"""

from ansible_collections.fullpipe.host.plugins.module_utils.service import main

main("serve")
