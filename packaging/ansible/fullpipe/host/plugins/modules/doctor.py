#!/usr/bin/python
from __future__ import annotations

DOCUMENTATION = r"""
module: doctor
short_description: Check whether a host is ready for a congestion controller
description:
  - Runs C(fullpipe doctor) and returns its findings, also as the fact C(fullpipe_doctor). Changes nothing and needs no root.
options:
  controller:
    description: Controller to check for.
    type: str
    default: bbr
  rate:
    description: Rate that one connection should reach, such as C(1gbit); with I(rtt), the buffer limits are checked.
    type: str
  rtt:
    description: Round-trip time of its path, such as C(80ms).
    type: str
  fail_on:
    description: Verdict from which the task fails. With C(never), the task only reports.
    type: str
    choices: [never, fail, warn]
    default: never
extends_documentation_fragment: fullpipe.host.host
attributes:
  check_mode: {support: full}
"""

EXAMPLES = r"""
- name: Fail on hosts that are not ready
  fullpipe.host.doctor:
    controller: bbr
    rate: 1gbit
    rtt: 80ms
    fail_on: fail
"""

RETURN = r"""
worst:
  description: Worst verdict, C(fail), C(warn), C(unknown), C(advice) or C(ok).
  type: str
  returned: always
report:
  description: Output of C(fullpipe doctor --json), schema C(fullpipe/doctor/1).
  type: dict
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.fullpipe.host.plugins.module_utils.fullpipe import ARGUMENTS, Fullpipe

FAILING = {"never": (), "fail": ("fail",), "warn": ("fail", "warn")}


def main():
    module = AnsibleModule(
        argument_spec=dict(
            ARGUMENTS,
            controller={"type": "str", "default": "bbr"},
            rate={"type": "str"},
            rtt={"type": "str"},
            fail_on={"type": "str", "default": "never", "choices": list(FAILING)},
        ),
        required_together=[("rate", "rtt")],
        supports_check_mode=True,
    )
    params = module.params
    path = ["--rate", params["rate"], "--rtt", params["rtt"]] if params["rate"] else []
    # Exit code 1 means that a check failed, which fail_on judges.
    report = Fullpipe(module).json("doctor", params["controller"], *path, codes=(0, 1))
    # Worst first.
    worst = report["findings"][0]["verdict"] if report["findings"] else "ok"
    result = {"changed": False, "worst": worst, "report": report, "ansible_facts": {"fullpipe_doctor": report}}
    if worst in FAILING[params["fail_on"]]:
        found = [f"{one['id']}: {one['state']}" for one in report["findings"] if one["verdict"] in FAILING[params["fail_on"]]]
        module.fail_json(msg="not ready for " + params["controller"] + ": " + "; ".join(found), **result)
    module.exit_json(**result)


main()
