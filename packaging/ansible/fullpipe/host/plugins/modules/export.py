#!/usr/bin/python
from __future__ import annotations

DOCUMENTATION = r"""
module: export
short_description: Manage the Prometheus exporter of a host's TCP connections
description:
  - Enables and starts C(fullpipe-export.service) with these options, or stops and disables it. The package installs the unit.
extends_documentation_fragment: fullpipe.host.service
"""

EXAMPLES = r"""
- fullpipe.host.export:
    options: --by unit
"""

from ansible_collections.fullpipe.host.plugins.module_utils.service import main

main("export")
