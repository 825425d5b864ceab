"""Confirms the change that the module has on trial, over a new connection and after the play's own check.

If the change breaks the host's network, the confirmation cannot reach it, and the host rolls everything back by itself.
"""

from __future__ import annotations

import subprocess

from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

# Limits the control node's own check, which must not outlast every trial.
VERIFY_SECONDS = 600


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        result.update(self._execute_module(module_name="fullpipe.host.controller", module_args=arguments, task_vars=task_vars))
        if result.get("failed") or not result.pop("on_trial", False):
            return result

        verify = arguments.get("verify")
        if verify:
            wrong = self.verify(verify)
            if wrong:
                return self.unconfirmed(result, f"not confirmed: verify {wrong}")
        try:
            # A connection from before the change would prove nothing.
            self._connection.reset()
        except (NotImplementedError, AnsibleError, AttributeError):
            pass
        confirmed = self._execute_module(
            module_name="fullpipe.host.controller", module_args=dict(arguments, _confirms=True), task_vars=task_vars
        )
        if confirmed.get("failed"):
            return self.unconfirmed(result, f"not confirmed: {confirmed.get('msg', 'no reason given')}")
        result["status"] = confirmed.get("status")
        return result

    @staticmethod
    def unconfirmed(result, why):
        return dict(result, failed=True, msg=f"{why}; the host rolls everything back by itself at the deadline")

    @staticmethod
    def verify(command):
        """Returns why the play's own check failed, or None."""
        try:
            done = subprocess.run(command, shell=True, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=VERIFY_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return f"timed out after {VERIFY_SECONDS} s"
        if done.returncode == 0:
            return None
        lines = (done.stderr or done.stdout).strip().splitlines()
        return f"exited with {done.returncode}" + (f": {lines[-1]}" if lines else "")
