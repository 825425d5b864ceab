#!/usr/bin/python
from __future__ import annotations

DOCUMENTATION = r"""
module: serve
short_description: Manage the measuring server of a host
description:
  - Enables and starts C(fullpipe-serve.service) with these options, or stops and disables it. The package installs the unit.
extends_documentation_fragment: fullpipe.host.service
"""

EXAMPLES = r"""
- fullpipe.host.serve:
    options: --max-rate 1gbit --max-time 60s --allow 192.0.2.0/24
"""

from ansible_collections.fullpipe.host.plugins.module_utils.service import main

main("serve")
