"""Gymnasium environments for training congestion controllers: policies set the windows of flows on a simulated path.

>>> import gymnasium, fullpipe
>>> env = gymnasium.make("fullpipe/Path-v1")
>>> observation, info = env.reset(seed=1)
>>> observation, reward, terminated, truncated, info = env.step(env.action_space.sample())

An episode is a run of the scenario with the seed of `reset`. A step takes a round trip of the flow (its smoothed RTT) or a fixed
time. Its cost is that of simulating its packets: 10 Mbit/s at 40 ms is 33 packets per step.

Vectorised: `gymnasium.make_vec("fullpipe/Path-v1", num_envs=8)`. Several agents on one path: `fullpipe.multi`.
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

#: The default scenario.
DEFAULT = {
    "duration": "30s",
    "path": {"rate": "10mbit", "rtt": "40ms", "buffer": "1bdp"},
    "flow": [{"cc": "agent"}],
}

#: Values of an observation, in order, each clipped to [-10, 10]; "the episode" means its past.
OBSERVATIONS: tuple[str, ...] = tuple(_fullpipe.OBSERVATIONS)

#: A custom reward, called with the measurements of the step (by the names in `Episode.FEATURES`; NaN if unknown), the maximum delivery
#: rate (bit/s) and the minimum RTT (s) of the episode.
Reward = Callable[[Mapping[str, float], float, float], float]

#: The built-in rewards:
#: "orca": Abbasloo, Yen, Chao: "Classic Meets Modern: a Pragmatic Learning-Based Congestion Control for the Internet", SIGCOMM 2020, § 4:
#: (delivery rate - 5 x loss rate) / delay, divided by the maximum delivery rate / minimum delay of the episode; a delay up to 1.25 times
#: the minimum counts as the minimum. It is relative to the rate reached, so a sender that stays slow is not punished.
#: "aurora": Jay, Rotman, Godfrey, Schapira, Tamar: "A Deep Reinforcement Learning Perspective on Internet Congestion Control", ICML 2019,
#: § 4: 10 x throughput (packets a second) - 1000 x latency (seconds) - 2000 x loss (share).
#: "remy": Winstein, Balakrishnan: "TCP ex Machina: Computer-Generated Congestion Control", SIGCOMM 2013, § 3.3, with delta = 1:
#: log2 of the throughput (Mbit/s, at least 0.01) - log2 of the delay (units of 100 ms). Twice the rate is worth half the delay.
REWARDS: tuple[str, ...] = tuple(_fullpipe.REWARDS)

ACTIONS = ("multiplier", "multiplier+pacing", "cwnd", "cwnd+pacing")


def _number(written: str | float, name: str) -> float:
    number = quantity(str(written))
    if number is None or not number > 0:
        raise ValueError(f"{name} must be a quantity above 0, got `{written}`")
    return number


class Settings:
    """Settings of all environments.

    scenario: as for `fullpipe.run`; flows with `cc = "agent"` are controlled by the policy, others by their own controllers.
    action: "multiplier" (one number a in [-1, 1]: the window is multiplied by 2**a, as in Orca), "multiplier+pacing" (a second number b
        in [-1, 1]: the pacing rate is 2**b windows per mean RTT of the last step), "cwnd" (one number in [0, 1]: the window on a
        logarithmic scale between 2 and `max_window` packets) or "cwnd+pacing" (a second number for the pacing rate, on a logarithmic
        scale between `rates`). Without pacing, packets are sent as the window allows. A `Policy` has one of the first two.
    max_window: maximum window in packets, for all actions.
    step: "rtt" (the shortest of the agents), or a time ("20ms").
    reward: "orca", "aurora", "remy" or a function (see `Reward`).
    info: whether each step returns its measurements by name.
    """

    def __init__(
        self,
        scenario: Any = None,
        *,
        action: str = "multiplier",
        step: str | float = "rtt",
        reward: str | Reward = "orca",
        max_window: int = 10_000,
        rates: tuple[str | float, str | float] = ("100kbit", "10gbit"),
        info: bool = False,
    ) -> None:
        self.cases = Scenario(DEFAULT if scenario is None else scenario, ["agent"]).cases()
        if action not in ACTIONS:
            raise ValueError(f'action must be one of {", ".join(ACTIONS)}, got "{action}"')
        self.action, self.max_window = action, float(max_window)
        self.length = None if step == "rtt" else _number(step, "step")
        self.rates = tuple(_number(rate, "rates") for rate in rates)
        if isinstance(reward, str) and reward not in REWARDS:
            raise ValueError(f'reward must be {", ".join(REWARDS)} or a function, got "{reward}"')
        self.custom_reward = None if isinstance(reward, str) else reward
        self.reward_index = REWARDS.index(reward) if isinstance(reward, str) else 0
        self.info = info
        self.values = 2 if action.endswith("+pacing") else 1
        low = -1.0 if action.startswith("multiplier") else 0.0
        self.action_space = gymnasium.spaces.Box(low, 1.0, (self.values,), numpy.float32)
        self.observation_space = gymnasium.spaces.Box(-10.0, 10.0, (len(OBSERVATIONS),), numpy.float32)

    def start(self, random: numpy.random.Generator) -> Driver:
        """Start an episode with a new seed."""
        drawn = int(random.integers(1 << 31))
        return Driver(self.cases, drawn, self.action, self.max_window, self.rates, self.length)

    def action_pair(self, action: Sequence[float]) -> tuple[float, float]:
        """Convert an action for the driver."""
        return float(action[0]), float(action[1]) if self.values == 2 else 0.0

    def reward(self, driver: Driver, rewards: Sequence[float]) -> float:
        """The reward of the last step."""
        if self.custom_reward is None:
            return rewards[self.reward_index]
        return float(self.custom_reward(dict(zip(Episode.FEATURES, driver.measurements())), *driver.extremes))


def _measurements(driver: Driver | None, agent: int = 0) -> dict[str, float]:
    if driver is None:
        raise RuntimeError("no episode: call reset")
    values = zip(Episode.FEATURES, driver.measurements(agent))
    return {name: value for name, value in values if not math.isnan(value)}


def _check_single_agent(driver: Driver) -> Driver:
    if len(driver.labels) != 1:
        raise _fullpipe.ScenarioError(
            "the scenario has several flows with the controller `agent`\n  help: use `fullpipe.multi` for several policies on one path"
        )
    return driver


class PathEnv(gymnasium.Env):
    """One flow with the controller `agent` on the path of a scenario; other flows have their own controllers. See `Settings` for the
    arguments; `measurements()` returns the measurements of the last step."""

    metadata = {"render_modes": []}

    def __init__(self, scenario: Any = None, *, render_mode: None = None, **settings: Any) -> None:
        self.render_mode = render_mode
        self._settings = Settings(scenario, **settings)
        self.action_space = self._settings.action_space
        self.observation_space = self._settings.observation_space
        self._driver: Driver | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start a run and simulate it up to the first RTT sample of the flow."""
        super().reset(seed=seed)
        self._driver = _check_single_agent(self._settings.start(self.np_random))
        return numpy.array(self._driver.observation(), numpy.float32), self.measurements() if self._settings.info else {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Set the window and simulate a step. The episode is truncated at the end of the scenario, and terminated when the flow has sent
        all its data."""
        driver, settings = self._driver, self._settings
        if driver is None:
            raise RuntimeError("no episode: call reset")
        observation, rewards, done, sent = driver.step(float(action[0]), float(action[1]) if settings.values == 2 else 0.0)
        reward = rewards[settings.reward_index] if settings.custom_reward is None else settings.reward(driver, rewards)
        return numpy.array(observation, numpy.float32), reward, sent, done and not sent, self.measurements() if settings.info else {}

    def measurements(self) -> dict[str, float]:
        """Measurements of the last step by the names in `Episode.FEATURES`; unknown ones are omitted."""
        return _measurements(self._driver)

    def results(self) -> Results:
        """End the episode and return its results."""
        if self._driver is None:
            raise RuntimeError("no episode: call reset")
        driver, self._driver = self._driver, None
        return Results(driver.finish())


class PathVectorEnv(gymnasium.vector.VectorEnv):
    """A vector of `PathEnv`, as created by `gymnasium.make_vec("fullpipe/Path-v1", num_envs=…)`. Environment i, reset with a seed s, equals
    `PathEnv` with s + i. An environment that has ended is reset by the next step, which ignores its action and gives no reward
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
        self._done = numpy.zeros(num_envs, bool)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start a run in each environment."""
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
        self._drivers = [_check_single_agent(self._settings.start(random)) for random in self._random]
        self._done[:] = False
        observations = numpy.array([driver.observation() for driver in self._drivers], numpy.float32)
        return observations, self._infos()

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Simulate a step of each environment."""
        if not self._drivers:
            raise RuntimeError("no episodes: call reset")
        settings = self._settings
        observations: list[Sequence[float]] = []
        rewards = numpy.zeros(self.num_envs)
        terminated, truncated = numpy.zeros(self.num_envs, bool), numpy.zeros(self.num_envs, bool)
        for i, action in enumerate(actions):
            if self._done[i]:
                self._drivers[i] = settings.start(self._random[i])
                observations.append(self._drivers[i].observation())
                continue
            driver = self._drivers[i]
            observation, step_rewards, done, sent = driver.step(*settings.action_pair(action))
            observations.append(observation)
            rewards[i] = settings.reward(driver, step_rewards)
            terminated[i], truncated[i] = sent, done and not sent
        self._done = terminated | truncated
        return numpy.array(observations, numpy.float32), rewards, terminated, truncated, self._infos()

    def measurements(self) -> list[dict[str, float]]:
        """Measurements of each environment in its last step (see `PathEnv.measurements`)."""
        return [_measurements(driver) for driver in self._drivers]

    def _infos(self) -> dict[str, Any]:
        infos: dict[str, Any] = {}
        if self._settings.info:
            for i, measurements in enumerate(self.measurements()):
                infos = self._add_info(infos, measurements, i)
        return infos
