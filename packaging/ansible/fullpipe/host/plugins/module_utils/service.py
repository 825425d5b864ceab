"""Manages a service of the package: its options, and whether it is enabled and running."""

from __future__ import annotations

import os
import tempfile

from ansible.module_utils.basic import AnsibleModule

# Marks the lines of the play. They follow and override the existing ones, which are restored byte for byte.
HEAD = "\n# Written by Ansible (fullpipe.host).\n"


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def main(name):
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "default": "present", "choices": ["present", "absent"]},
            "options": {"type": "str", "default": ""},
            "root": {"type": "path"},
        },
        supports_check_mode=True,
    )
    params, unit = module.params, f"fullpipe-{name}.service"
    root = params["root"] or "/"
    path = os.path.join(root, f"etc/fullpipe/{name}.env")
    # A link in an image may lead to files of this host.
    if not os.path.realpath(path).startswith(os.path.join(os.path.realpath(root), "")):
        module.fail_json(msg=f"{path} leads out of {root}")
    if any(c in params["options"] for c in "\n\r\"'\\"):
        module.fail_json(msg="options: one line, without quotes and backslashes, as systemd reads it")
    offline = ["--root", params["root"]] if params["root"] else []

    def systemctl(*words, codes=(0,)):
        code, out, err = module.run_command(["systemctl", *offline, *words])
        if code not in codes and None not in codes:
            module.fail_json(msg=(err or out).strip() or f"systemctl {' '.join(words)} exited with {code}", rc=code)
        return out.strip()

    present = params["state"] == "present"
    before = read(path)
    wanted = before.partition(HEAD)[0]
    if present and params["options"]:
        wanted += f"{HEAD}OPTIONS={params['options']}\n"
    enabled = systemctl("is-enabled", unit, codes=(None,)) == "enabled"
    # In an image nothing runs.
    runs = enabled if offline else systemctl("is-active", unit, codes=(None,)) in ("active", "activating")
    changed = wanted != before or enabled != present or runs != present
    result = {"changed": changed, "diff": {"before_header": path, "after_header": path, "before": before, "after": wanted}}
    if not changed or module.check_mode:
        module.exit_json(**result)
    if wanted != before:
        if wanted:
            os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=module.tmpdir, delete=False) as file:
                file.write(wanted)
            os.chmod(file.name, 0o644)
            module.atomic_move(file.name, path)
        else:
            os.remove(path)
    if enabled != present:
        systemctl("enable" if present else "disable", unit)
    if not offline:
        if not present:
            systemctl("stop", unit)
        elif not runs:
            systemctl("start", unit)
        elif wanted != before:
            systemctl("restart", unit)
    module.exit_json(**result)
