#!/usr/bin/python
from __future__ import annotations

DOCUMENTATION = r"""
module: controller
short_description: A congestion controller in force on a host, or all of it taken back
description:
  - Puts a controller in force by C(fullpipe apply), on trial. It is kept only if the control node reaches the host again over a new
    connection, and if I(verify) succeeds there; otherwise the host puts everything back by itself when I(confirm) is over.
  - With I(state=absent) C(fullpipe revert) takes back everything that fullpipe changed, byte for byte.
  - In check mode the plan is returned and nothing is changed; in diff mode the files and settings are shown.
options:
  name:
    description: The controller, C(bbr), C(fp_bbr3), C(hybla), C(cubic), C(reno).
    type: str
    default: bbr
  state:
    description: Whether a controller shall be in force through fullpipe.
    type: str
    choices: [present, absent]
    default: present
  confirm:
    description: How long the host waits to be confirmed before it puts everything back. C(0s) applies for good at once.
    type: str
    default: 60s
  verify:
    description:
      - A command that the control node runs between the change and its confirmation, such as a request to the service on the host. If it
        fails, nothing is confirmed.
    type: str
  qdisc:
    description: The queueing discipline, C(keep) to leave what there is. By default what the controller recommends.
    type: str
  rate:
    description: With I(rtt), raise the limits of the buffers to what such a path needs.
    type: str
  rtt:
    description: See I(rate).
    type: str
  live_only:
    description: Change the running kernel alone; a restart takes it back.
    type: bool
    default: false
extends_documentation_fragment: fullpipe.host.host
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
"""

EXAMPLES = r"""
- name: BBR, confirmed over a new connection once the service answers
  fullpipe.host.controller:
    name: bbr
    verify: curl --fail --silent --max-time 5 https://{{ inventory_hostname }}/health

- name: Everything as it was
  fullpipe.host.controller:
    state: absent
"""

RETURN = r"""
plan:
  description: What was changed, or would be, form C(fullpipe/plan/1).
  type: dict
  returned: state is present
undone:
  description: What was put back.
  type: list
  elements: str
  returned: state is absent, and something was in force
status:
  description: What C(fullpipe status --json) says afterwards.
  type: dict
  returned: not in check mode
"""

import os
import subprocess
import tempfile
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.fullpipe.host.plugins.module_utils.fullpipe import ARGUMENTS, Fullpipe, diff, in_force


def how(params):
    words = []
    if params["qdisc"]:
        words += ["--qdisc", params["qdisc"]]
    if params["rate"]:
        words += ["--buffers", "auto", "--rate", params["rate"], "--rtt", params["rtt"]]
    if params["live_only"]:
        words += ["--live-only"]
    return words


def begin_trial(module, fullpipe, words):
    """Starts `apply --confirm` in a session of its own, which outlives this connection, and returns when the change is made."""
    with tempfile.TemporaryFile() as told:
        # Without a terminal or a pipe, whose end would undo the change at once.
        apply = subprocess.Popen(fullpipe.command(*words, "--json"), stdin=subprocess.DEVNULL, stdout=told, stderr=told, start_new_session=True,
                                 cwd="/", env=dict(os.environ, LC_ALL="C"))
        until = time.monotonic() + 120
        while apply.poll() is None and time.monotonic() < until:
            status = fullpipe.status()
            if "confirm_within" in status:
                return status
            time.sleep(0.2)
        told.seek(0)
        words = told.read().decode(errors="replace").strip()
        module.fail_json(msg=words or "the change was not made within two minutes", rc=apply.poll())


def present(module, fullpipe):
    params = module.params
    words = [params["name"], *how(params)]
    plan = fullpipe.json("plan", *words)
    result = {"changed": bool(plan["steps"]), "plan": plan, "diff": diff(plan)}
    if not result["changed"] or module.check_mode:
        return result
    if params["confirm"].strip() in ("0", "0s"):
        fullpipe.json("apply", *words)
        return dict(result, status=fullpipe.status())
    status = begin_trial(module, fullpipe, ["apply", *words, "--confirm", params["confirm"]])
    # The action plugin confirms, from a new connection.
    return dict(result, status=status, on_trial=True)


def absent(module, fullpipe):
    status = fullpipe.status()
    if not in_force(status):
        return {"changed": False, "status": status}
    if module.check_mode:
        return {"changed": True, "diff": {"before": status["summary"] + "\n", "after": "as before fullpipe\n"}}
    undone = fullpipe.json("revert")["undone"]
    status = fullpipe.status()
    return {"changed": True, "undone": undone, "status": status,
            "diff": {"before": "".join(f"{one}\n" for one in undone), "after": ""}}


def confirm(module, fullpipe):
    code, out, err = module.run_command(fullpipe.command("confirm"))
    if code != 0:
        module.fail_json(msg=(err or out).strip(), rc=code)
    return {"changed": True, "status": fullpipe.status()}


def main():
    module = AnsibleModule(
        argument_spec=dict(
            ARGUMENTS,
            name={"type": "str", "default": "bbr"},
            state={"type": "str", "default": "present", "choices": ["present", "absent"]},
            confirm={"type": "str", "default": "60s"},
            verify={"type": "str"},
            qdisc={"type": "str"},
            rate={"type": "str"},
            rtt={"type": "str"},
            live_only={"type": "bool", "default": False},
            # The action plugin's, for the second call.
            _confirms={"type": "bool", "default": False},
        ),
        required_together=[("rate", "rtt")],
        supports_check_mode=True,
    )
    fullpipe = Fullpipe(module)
    if module.params["_confirms"]:
        module.exit_json(**confirm(module, fullpipe))
    do = {"present": present, "absent": absent}[module.params["state"]]
    module.exit_json(**do(module, fullpipe))


main()
