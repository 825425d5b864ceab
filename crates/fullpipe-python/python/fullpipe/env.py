"""An environment to train congestion controllers in: a flow on a simulated path, whose window a policy sets.

>>> import gymnasium, fullpipe
>>> env = gymnasium.make("fullpipe/Path-v1")
>>> observation, info = env.reset(seed=1)
>>> observation, reward, terminated, truncated, info = env.step(env.action_space.sample())

An episode is a run of the scenario; everything random in it comes from the seed of `reset`. A step lasts a round trip of the flow (its
smoothed RTT) or a fixed time. The simulator's packets cost what they cost in any run: 10 Mbit/s at 40 ms is 33 packets a step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy

from ._fullpipe import Driver, Episode, quantity
from ._run import Results, Scenario

#: The scenario of an environment that is not given one.
DEFAULT = {
    "duration": "30s",
    "path": {"rate": "10mbit", "rtt": "40ms", "buffer": "1bdp"},
    "flow": [{"cc": "agent"}],
}

#: What an observation holds, in this order, each cut to [-10, 10]:
OBSERVATIONS = (
    "delivery rate of the step / greatest of the episode",
    "sending rate of the step / greatest delivery rate of the episode",
    "mean RTT of the step / least of the episode, less 1",
    "change of the mean RTT since the step before / least RTT",
    "bytes lost in the step / bytes sent in it",
    "bytes in flight / window",
    "log2 of window / (greatest delivery rate x least RTT)",
    "share of ACKs with a Congestion Experienced mark",
)

#: A reward of one's own: from what was seen (the values by the names of `Episode.FEATURES`; NaN where nobody knows yet), the greatest
#: delivery rate (bit/s) and the least RTT (s) of the episode.
Reward = Callable[[Mapping[str, float], float, float], float]

#: The rewards that are built in:
#: "orca": Abbasloo, Yen, Chao: "Classic Meets Modern: a Pragmatic Learning-Based Congestion Control for the Internet", SIGCOMM 2020, § 4:
#: (delivery rate - 5 x loss rate) / delay, over the greatest delivery rate / least delay of the episode; a delay up to 1.25 times the least
#: counts as the least.
#: "aurora": Jay, Rotman, Godfrey, Schapira, Tamar: "A Deep Reinforcement Learning Perspective on Internet Congestion Control", ICML 2019,
#: § 4: 10 x throughput (packets a second) - 1000 x latency (seconds) - 2000 x loss (share).
REWARDS = ("orca", "aurora")


class PathEnv(gymnasium.Env):
    """One flow with the controller `agent` on the path of a scenario; other flows have controllers of their own.

    scenario: as `fullpipe.run` takes it; one of its flows has `cc = "agent"`.
    action: "multiplier" (one number a in [-1, 1]: the window becomes 2**a times what it was, as in Orca), "cwnd" (one number in [0, 1]:
        the window's place between 2 packets and `most` of them, logarithmic) or "cwnd+pacing" (a second one for the pacing rate, between
        `rates`, logarithmic).
    step: "rtt", or a time ("20ms").
    reward: "orca", "aurora" or a function (see `Reward`).
    info: whether each step tells all that was seen, by name; `seen()` tells it at any time.
    """

    metadata = {"render_modes": []}

    def __init__(
        self,
        scenario: Any = None,
        *,
        action: str = "multiplier",
        step: str | float = "rtt",
        reward: str | Reward = "orca",
        most: int = 10_000,
        rates: tuple[str | float, str | float] = ("100kbit", "10gbit"),
        info: bool = False,
        render_mode: None = None,
    ) -> None:
        self.render_mode = render_mode
        self._cases = Scenario(DEFAULT if scenario is None else scenario, ["agent"]).cases()
        if action not in ("multiplier", "cwnd", "cwnd+pacing"):
            raise ValueError(f'action="{action}": it is "multiplier", "cwnd" or "cwnd+pacing"')
        self._action, self._most = action, most
        self._step = None if step == "rtt" else self._number(step, "step")
        self._rates = tuple(self._number(rate, "rates") for rate in rates)
        if isinstance(reward, str) and reward not in REWARDS:
            raise ValueError(f'reward="{reward}": it is {", ".join(REWARDS)} or a function')
        self._reward, self._info = reward, info
        low = -1.0 if action == "multiplier" else 0.0
        size = 2 if action == "cwnd+pacing" else 1
        self.action_space = gymnasium.spaces.Box(low, 1.0, (size,), numpy.float32)
        self.observation_space = gymnasium.spaces.Box(-10.0, 10.0, (len(OBSERVATIONS),), numpy.float32)
        self._two = size == 2
        self._driver: Driver | None = None

    @staticmethod
    def _number(written: str | float, name: str) -> float:
        number = quantity(str(written))
        if number is None or not number > 0:
            raise ValueError(f"{name}: `{written}` is no quantity above 0")
        return number

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins a run, up to the first round-trip time that the flow knows."""
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(1 << 31))
        self._driver = Driver(self._cases, drawn, self._action, float(self._most), self._rates, self._step)
        return numpy.array(self._driver.observation(), numpy.float32), self.seen() if self._info else {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Sets the window, lets a step's time pass, and tells what came of it. Truncated when the scenario's time is over, terminated when
        the flow has sent what it was to send."""
        if self._driver is None:
            raise RuntimeError("there is no episode: call reset")
        observed, orca, aurora, over, sent = self._driver.step(float(action[0]), float(action[1]) if self._two else 0.0)
        if self._reward == "orca":
            reward = orca
        elif self._reward == "aurora":
            reward = aurora
        else:
            seen = dict(zip(Episode.FEATURES, self._driver.seen()))
            reward = float(self._reward(seen, *self._driver.best))  # type: ignore[operator]
        return numpy.array(observed, numpy.float32), reward, sent, over and not sent, self.seen() if self._info else {}

    def seen(self) -> dict[str, float]:
        """All that was seen in the last step, by the names of `Episode.FEATURES`, less what nobody knows yet."""
        if self._driver is None:
            raise RuntimeError("there is no episode: call reset")
        values = zip(Episode.FEATURES, self._driver.seen())
        return {name: value for name, value in values if not math.isnan(value)}

    def results(self) -> Results:
        """Ends the episode and gives its recording, like that of any run."""
        if self._driver is None:
            raise RuntimeError("there is no episode: call reset")
        driver, self._driver = self._driver, None
        return Results(driver.finish())
