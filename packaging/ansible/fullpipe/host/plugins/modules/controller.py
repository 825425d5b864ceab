#!/usr/bin/python
from __future__ import annotations

DOCUMENTATION = r"""
module: controller
short_description: Enable a congestion controller on a host, or revert all changes
description:
  - Enables a controller by C(fullpipe apply), on trial. It is kept only if the control node reaches the host over a new connection,
    and if I(verify) succeeds; otherwise the host rolls everything back by itself after I(confirm).
  - With I(state=absent), C(fullpipe revert) undoes all changes made by fullpipe, byte for byte.
  - In check mode, returns the plan and changes nothing; in diff mode, shows the files and settings.
options:
  name:
    description: Controller to enable, C(bbr), C(fp_bbr3), C(hybla), C(cubic), C(reno).
    type: str
    default: bbr
  state:
    description: Whether fullpipe enables a controller (C(present)) or reverts its changes (C(absent)).
    type: str
    choices: [present, absent]
    default: present
  confirm:
    description: Time that the host waits for the confirmation before it rolls everything back. C(0s) applies without a trial.
    type: str
    default: 60s
  verify:
    description:
      - Command that the control node runs between the change and its confirmation, such as a request to a service of the host. If it
        fails, the change is not confirmed.
    type: str
  qdisc:
    description: Queueing discipline, or C(keep) to leave it unchanged. By default, what the controller needs.
    type: str
  rate:
    description: Rate of a path; with I(rtt), the buffer limits are raised to what the path needs.
    type: str
  rtt:
    description: Round-trip time of the path, see I(rate).
    type: str
  live_only:
    description: Change only the running kernel; a restart undoes it.
    type: bool
    default: false
extends_documentation_fragment: fullpipe.host.host
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
"""

EXAMPLES = r"""
- name: Enable BBR, confirmed over a new connection once the service responds
  fullpipe.host.controller:
    name: bbr
    verify: curl --fail --silent --max-time 5 https://{{ inventory_hostname }}/health

- name: Revert all changes
  fullpipe.host.controller:
    state: absent
"""

RETURN = r"""
plan:
  description: Changes made, or to be made, schema C(fullpipe/plan/1).
  type: dict
  returned: state is present
undone:
  description: Changes that were undone.
  type: list
  elements: str
  returned: state is absent, and changes were applied
status:
  description: Output of C(fullpipe status --json) afterwards.
  type: dict
  returned: not in check mode
"""

import os
import subprocess
import tempfile
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.fullpipe.host.plugins.module_utils.fullpipe import ARGUMENTS, Fullpipe, diff, is_applied


def options(params):
    words = []
    if params["qdisc"]:
        words += ["--qdisc", params["qdisc"]]
    if params["rate"]:
        words += ["--rate", params["rate"], "--rtt", params["rtt"]]
    if params["live_only"]:
        words += ["--live-only"]
    return words


def begin_trial(module, fullpipe, words):
    """Starts `apply --confirm` in its own session, which outlives this connection, and returns once the change is made."""
    with tempfile.TemporaryFile() as output:
        # Standard input must not be a terminal or a pipe, since its end would roll the change back.
        apply = subprocess.Popen(fullpipe.command(*words, "--json"), stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
                                 cwd="/", env=dict(os.environ, LC_ALL="C"))
        until = time.monotonic() + 120
        while apply.poll() is None and time.monotonic() < until:
            status = fullpipe.status()
            if "confirm_within" in status:
                return status
            time.sleep(0.2)
        output.seek(0)
        text = output.read().decode(errors="replace").strip()
        module.fail_json(msg=text or "the change was not made within two minutes", rc=apply.poll())


def present(module, fullpipe):
    params = module.params
    words = [params["name"], *options(params)]
    plan = fullpipe.json("plan", *words)
    result = {"changed": bool(plan["steps"]), "plan": plan, "diff": diff(plan)}
    if not result["changed"] or module.check_mode:
        return result
    if params["confirm"].strip() in ("0", "0s"):
        fullpipe.json("apply", *words)
        return dict(result, status=fullpipe.status())
    status = begin_trial(module, fullpipe, ["apply", *words, "--confirm", params["confirm"]])
    # The action plugin confirms over a new connection.
    return dict(result, status=status, on_trial=True)


def absent(module, fullpipe):
    status = fullpipe.status()
    if not is_applied(status):
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
            # Set by the action plugin in its second call.
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
