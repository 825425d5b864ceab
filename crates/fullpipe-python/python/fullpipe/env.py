"""Environments to train congestion controllers in: flows on a simulated path, whose windows policies set.

>>> import gymnasium, fullpipe
>>> env = gymnasium.make("fullpipe/Path-v1")
>>> observation, info = env.reset(seed=1)
>>> observation, reward, terminated, truncated, info = env.step(env.action_space.sample())

An episode is a run of the scenario; everything random in it comes from the seed of `reset`. A step lasts a round trip of the flow (its
smoothed RTT) or a fixed time. The simulator's packets cost what they cost in any run: 10 Mbit/s at 40 ms is 33 packets a step.

Many at once: `gymnasium.make_vec("fullpipe/Path-v1", num_envs=8)`. Several agents on one path: `fullpipe.multi`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from . import _fullpipe
from ._fullpipe import Driver, Episode, quantity
from ._run import Results, Scenario

#: The scenario of an environment that is not given one.
DEFAULT = {
    "duration": "30s",
    "path": {"rate": "10mbit", "rtt": "40ms", "buffer": "1bdp"},
    "flow": [{"cc": "agent"}],
}

#: What an observation holds, in this order, each cut to [-10, 10]; "the episode" is what has passed of it.
OBSERVATIONS: tuple[str, ...] = tuple(_fullpipe.OBSERVATIONS)

#: A reward of one's own: from what was seen (the values by the names of `Episode.FEATURES`; NaN where nobody knows yet), the greatest
#: delivery rate (bit/s) and the least RTT (s) of the episode.
Reward = Callable[[Mapping[str, float], float, float], float]

#: The rewards that are built in:
#: "orca": Abbasloo, Yen, Chao: "Classic Meets Modern: a Pragmatic Learning-Based Congestion Control for the Internet", SIGCOMM 2020, § 4:
#: (delivery rate - 5 x loss rate) / delay, over the greatest delivery rate / least delay of the episode; a delay up to 1.25 times the least
#: counts as the least. Relative to what was reached: who never sends more than a little finds that the path carries little.
#: "aurora": Jay, Rotman, Godfrey, Schapira, Tamar: "A Deep Reinforcement Learning Perspective on Internet Congestion Control", ICML 2019,
#: § 4: 10 x throughput (packets a second) - 1000 x latency (seconds) - 2000 x loss (share).
#: "remy": Winstein, Balakrishnan: "TCP ex Machina: Computer-Generated Congestion Control", SIGCOMM 2013, § 3.3, with delta = 1:
#: log2 of the throughput (Mbit/s, at least 0.01) - log2 of the delay (units of 100 ms). Twice the rate is worth half the delay.
REWARDS: tuple[str, ...] = tuple(_fullpipe.REWARDS)

ACTIONS = ("multiplier", "multiplier+pacing", "cwnd", "cwnd+pacing")


def _number(written: str | float, name: str) -> float:
    number = quantity(str(written))
    if number is None or not number > 0:
        raise ValueError(f"{name}: `{written}` is no quantity above 0")
    return number


class Settings:
    """What the environments have in common.

    scenario: as `fullpipe.run` takes it; flows with `cc = "agent"` are driven, others have controllers of their own.
    action: "multiplier" (one number a in [-1, 1]: the window becomes 2**a times what it was, as in Orca), "multiplier+pacing" (a second
        one, b, in [-1, 1]: the pacing rate becomes 2**b windows in the mean round trip of the last step), "cwnd" (one number in [0, 1]:
        the window's place between 2 packets and `most` of them, logarithmic) or "cwnd+pacing" (a second one for the pacing rate, between
        `rates`, logarithmic). What is not paced leaves as the window lets it. A `Policy` has one of the first two.
    most: the greatest window in packets, whatever the action.
    step: "rtt" (of several agents the shortest), or a time ("20ms").
    reward: "orca", "aurora", "remy" or a function (see `Reward`).
    info: whether each step tells all that was seen, by name.
    """

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
    ) -> None:
        self.cases = Scenario(DEFAULT if scenario is None else scenario, ["agent"]).cases()
        if action not in ACTIONS:
            raise ValueError(f'action="{action}": it is one of {", ".join(ACTIONS)}')
        self.action, self.most = action, float(most)
        self.length = None if step == "rtt" else _number(step, "step")
        self.rates = tuple(_number(rate, "rates") for rate in rates)
        if isinstance(reward, str) and reward not in REWARDS:
            raise ValueError(f'reward="{reward}": it is {", ".join(REWARDS)} or a function')
        self.own = None if isinstance(reward, str) else reward
        self.which = REWARDS.index(reward) if isinstance(reward, str) else 0
        self.info = info
        self.values = 2 if action.endswith("+pacing") else 1
        low = -1.0 if action.startswith("multiplier") else 0.0
        self.action_space = gymnasium.spaces.Box(low, 1.0, (self.values,), numpy.float32)
        self.observation_space = gymnasium.spaces.Box(-10.0, 10.0, (len(OBSERVATIONS),), numpy.float32)

    def begin(self, random: numpy.random.Generator) -> Driver:
        """An episode with a seed of its own."""
        drawn = int(random.integers(1 << 31))
        return Driver(self.cases, drawn, self.action, self.most, self.rates, self.length)

    def pair(self, action: Sequence[float]) -> tuple[float, float]:
        """An action as the driver takes it."""
        return float(action[0]), float(action[1]) if self.values == 2 else 0.0

    def reward(self, driver: Driver, rewards: Sequence[float]) -> float:
        """What the step was worth."""
        if self.own is None:
            return rewards[self.which]
        return float(self.own(dict(zip(Episode.FEATURES, driver.seen())), *driver.best))


def _seen(driver: Driver | None, agent: int = 0) -> dict[str, float]:
    if driver is None:
        raise RuntimeError("there is no episode: call reset")
    values = zip(Episode.FEATURES, driver.seen(agent))
    return {name: value for name, value in values if not math.isnan(value)}


def _one_agent(driver: Driver) -> Driver:
    if len(driver.labels) != 1:
        raise _fullpipe.ScenarioError(
            "one flow is driven here, the scenario has several of `agent`\n  help: several policies on one path: `fullpipe.multi`"
        )
    return driver


class PathEnv(gymnasium.Env):
    """One flow with the controller `agent` on the path of a scenario; other flows have controllers of their own. For the arguments see
    `Settings`; `seen()` tells at any time what was seen in the last step."""

    metadata = {"render_modes": []}

    def __init__(self, scenario: Any = None, *, render_mode: None = None, **settings: Any) -> None:
        self.render_mode = render_mode
        self._settings = Settings(scenario, **settings)
        self.action_space = self._settings.action_space
        self.observation_space = self._settings.observation_space
        self._driver: Driver | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins a run, up to the first round-trip time that the flow knows."""
        super().reset(seed=seed)
        self._driver = _one_agent(self._settings.begin(self.np_random))
        return numpy.array(self._driver.observation(), numpy.float32), self.seen() if self._settings.info else {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Sets the window, lets a step's time pass, and tells what came of it. Truncated when the scenario's time is over, terminated when
        the flow has sent what it was to send."""
        driver, settings = self._driver, self._settings
        if driver is None:
            raise RuntimeError("there is no episode: call reset")
        observed, rewards, over, sent = driver.step(float(action[0]), float(action[1]) if settings.values == 2 else 0.0)
        reward = rewards[settings.which] if settings.own is None else settings.reward(driver, rewards)
        return numpy.array(observed, numpy.float32), reward, sent, over and not sent, self.seen() if settings.info else {}

    def seen(self) -> dict[str, float]:
        """All that was seen in the last step, by the names of `Episode.FEATURES`, less what nobody knows yet."""
        return _seen(self._driver)

    def results(self) -> Results:
        """Ends the episode and gives its recording, like that of any run."""
        if self._driver is None:
            raise RuntimeError("there is no episode: call reset")
        driver, self._driver = self._driver, None
        return Results(driver.finish())


class PathVectorEnv(gymnasium.vector.VectorEnv):
    """Several of `PathEnv` gone through together: what `gymnasium.make_vec("fullpipe/Path-v1", num_envs=…)` makes. Environment i, reset
    with a seed s, is what `PathEnv` is with s + i. One that is over is reset by the next step, whose action and reward it does not have
    (gymnasium's `AutoresetMode.NEXT_STEP`)."""

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, num_envs: int = 1, scenario: Any = None, *, render_mode: None = None, **settings: Any) -> None:
        self.num_envs, self.render_mode = num_envs, render_mode
        self._settings = Settings(scenario, **settings)
        self.single_action_space = self._settings.action_space
        self.single_observation_space = self._settings.observation_space
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self._random: list[numpy.random.Generator] = []
        self._drivers: list[Driver] = []
        self._over = numpy.zeros(num_envs, bool)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins a run in each."""
        if seed is None or isinstance(seed, int):
            seeds: list[int | None] = [None if seed is None else seed + i for i in range(self.num_envs)]
        else:
            seeds = list(seed)
        if len(seeds) != self.num_envs:
            raise ValueError(f"{len(seeds)} seeds for {self.num_envs} environments")
        if not self._random:
            self._random = [gymnasium.utils.seeding.np_random(one)[0] for one in seeds]
        for i, one in enumerate(seeds):
            if one is not None:
                self._random[i] = gymnasium.utils.seeding.np_random(one)[0]
        self._drivers = [_one_agent(self._settings.begin(random)) for random in self._random]
        self._over[:] = False
        seen = numpy.array([driver.observation() for driver in self._drivers], numpy.float32)
        return seen, self._infos()

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """A step of each."""
        if not self._drivers:
            raise RuntimeError("there are no episodes: call reset")
        settings = self._settings
        observed: list[Sequence[float]] = []
        rewards = numpy.zeros(self.num_envs)
        terminated, truncated = numpy.zeros(self.num_envs, bool), numpy.zeros(self.num_envs, bool)
        for i, action in enumerate(actions):
            if self._over[i]:
                self._drivers[i] = settings.begin(self._random[i])
                observed.append(self._drivers[i].observation())
                continue
            driver = self._drivers[i]
            seen, told, over, sent = driver.step(*settings.pair(action))
            observed.append(seen)
            rewards[i] = settings.reward(driver, told)
            terminated[i], truncated[i] = sent, over and not sent
        self._over = terminated | truncated
        return numpy.array(observed, numpy.float32), rewards, terminated, truncated, self._infos()

    def seen(self) -> list[dict[str, float]]:
        """What each saw in its last step (`PathEnv.seen`)."""
        return [_seen(driver) for driver in self._drivers]

    def _infos(self) -> dict[str, Any]:
        infos: dict[str, Any] = {}
        if self._settings.info:
            for i, seen in enumerate(self.seen()):
                infos = self._add_info(infos, seen, i)
        return infos
