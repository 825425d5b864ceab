"""Calls the program and reads its output."""

from __future__ import annotations

import json

# Arguments that all modules share.
ARGUMENTS = {
    "program": {"type": "path", "default": "fullpipe"},
    "root": {"type": "path"},
}


class Fullpipe:
    """The program on the host."""

    def __init__(self, module):
        self.module = module
        self.program = module.params["program"]
        if "/" not in self.program:
            self.program = module.get_bin_path(self.program, required=True)
        self.target = ["--root", module.params["root"]] if module.params["root"] else []

    def command(self, *words):
        return [self.program, *words, *self.target]

    def json(self, *words, codes=(0,)):
        """Returns the JSON output of a command. If it fails, fails the task with its error message."""
        code, out, err = self.module.run_command(self.command(*words, "--json"))
        if code not in codes:
            self.module.fail_json(msg=err.strip() or f"fullpipe {words[0]} exited with {code}", rc=code, stdout=out)
        try:
            return json.loads(out)
        except ValueError as error:
            self.module.fail_json(msg=f"fullpipe {words[0]} --json: {error}", stdout=out, stderr=err)

    def status(self):
        # Exit code 1 means that the host differs from what was applied, which the output shows.
        return self.json("status", codes=(0, 1))


def is_applied(status):
    """Whether changes made by fullpipe are applied on this host."""
    return "phase" in status or bool(status.get("uses"))


def text_of(state):
    """A file's content in a plan's step, as lines for a diff."""
    if not isinstance(state, dict) or "file" not in state:
        return ""
    content = state["file"]["content"]
    return content.get("text", "(binary)\n") if isinstance(content, dict) else str(content)


def diff(plan):
    """The steps of a plan as Ansible shows differences: files as files, all else as one list of settings."""
    files, before, after = [], "", ""
    for step in plan["steps"]:
        ((kind, change),) = step["change"].items()
        if kind == "file":
            if "directory" in (change["after"] if isinstance(change["after"], dict) else {}):
                continue
            files.append({"before_header": change["path"], "after_header": change["path"],
                          "before": text_of(change["before"]), "after": text_of(change["after"])})
        elif kind == "sysctl":
            before += f"{change['name']} = {change['before']}\n"
            after += f"{change['name']} = {change['after']}\n"
        elif kind == "qdisc":
            kinds = " ".join(node["kind"] for node in change["before"])
            before += f"queueing discipline of {change['device']}: {kinds}\n"
            after += f"queueing discipline of {change['device']}: {change['after']}\n"
        else:
            after += f"{kind} {change.get('name', '') if isinstance(change, dict) else change}\n"
    settings = [{"before_header": "running kernel", "after_header": "running kernel", "before": before, "after": after}]
    return (settings if before or after else []) + files
