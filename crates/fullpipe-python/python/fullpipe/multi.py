"""Several policies on one path, with the parallel interface of PettingZoo.

>>> from fullpipe.multi import PathParallelEnv
>>> env = PathParallelEnv({"duration": "30s", "path": {"rate": "20mbit", "rtt": "40ms"},
...                        "flow": [{"cc": "agent", "count": 2, "stagger": "5s"}, {"cc": "cubic"}]})
>>> observations, infos = env.reset(seed=1)
>>> observations, rewards, terminations, truncations, infos = env.step({agent: env.action_space(agent).sample() for agent in env.agents})

Each flow with `cc = "agent"` is an agent, named by its label, with its own observations and rewards. A flow that has not started yet
observes zeros; its window is set from its first step on. Needs the extra `multi`.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy
from pettingzoo import ParallelEnv

from ._fullpipe import Driver
from ._run import Results
from .env import Settings, _measurements

#: The default scenario.
DEFAULT = {
    "duration": "30s",
    "path": {"rate": "20mbit", "rtt": "40ms", "buffer": "1bdp"},
    "flow": [{"cc": "agent", "count": 2}],
}


class PathParallelEnv(ParallelEnv):
    """The flows of `agent` on the path of a scenario. See `fullpipe.env.Settings` for the arguments; custom rewards are not supported.
    All agents step together. An agent terminates, and is removed, when its flow has sent all its data; all agents are truncated at
    the end of the scenario."""

    metadata = {"name": "fullpipe/Path-v1", "render_modes": [], "is_parallelizable": True}

    def __init__(self, scenario: Any = None, *, render_mode: None = None, **settings: Any) -> None:
        self.render_mode = render_mode
        self._settings = Settings(DEFAULT if scenario is None else scenario, **settings)
        if self._settings.custom_reward is not None:
            raise ValueError("custom rewards are not supported with several agents: use a built-in reward")
        self.possible_agents: list[str] = list(self._settings.start(numpy.random.default_rng(0)).labels)
        self.agents: list[str] = []
        self._random = numpy.random.default_rng()
        self._driver: Driver | None = None
        self._spaces = {
            agent: (gymnasium.spaces.Box(-10.0, 10.0, self._settings.observation_space.shape, numpy.float32), self._actions())
            for agent in self.possible_agents
        }

    def _actions(self) -> gymnasium.spaces.Box:
        like = self._settings.action_space
        return gymnasium.spaces.Box(like.low, like.high, like.shape, numpy.float32)

    def observation_space(self, agent: str) -> gymnasium.spaces.Box:
        """The observation space of an agent: `fullpipe.env.OBSERVATIONS` of its flow."""
        return self._spaces[agent][0]

    def action_space(self, agent: str) -> gymnasium.spaces.Box:
        """The action space of an agent."""
        return self._spaces[agent][1]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Start a run and simulate it up to the first RTT sample of a flow."""
        if seed is not None:
            self._random = gymnasium.utils.seeding.np_random(seed)[0]
        self._driver = self._settings.start(self._random)
        self.agents = list(self.possible_agents)
        observations = (numpy.array(one, numpy.float32) for one in self._driver.observations())
        return dict(zip(self.agents, observations)), self._infos()

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        """Set the windows of the active agents and simulate a step."""
        if self._driver is None or not self.agents:
            raise RuntimeError("no episode: call reset")
        # A removed agent has sent all its data; its window does not matter.
        pairs = [self._settings.action_pair(actions[agent]) if agent in actions else (0.0, 0.0) for agent in self.possible_agents]
        results, timed_out = self._driver.step_all(pairs)
        by_agent = {agent: one for agent, one in zip(self.possible_agents, results) if agent in self.agents}
        observations = {agent: numpy.array(observation, numpy.float32) for agent, (observation, _, _) in by_agent.items()}
        rewards = {agent: each[self._settings.reward_index] for agent, (_, each, _) in by_agent.items()}
        terminations = {agent: sent for agent, (_, _, sent) in by_agent.items()}
        truncations = {agent: timed_out for agent in by_agent}
        infos = self._infos()
        self.agents = [agent for agent in self.agents if not (terminations[agent] or timed_out)]
        return observations, rewards, terminations, truncations, infos

    def _infos(self) -> dict[str, Any]:
        if not self._settings.info:
            return {agent: {} for agent in self.agents}
        return {agent: _measurements(self._driver, i) for i, agent in enumerate(self.possible_agents) if agent in self.agents}

    def results(self) -> Results:
        """End the episode and return its results."""
        if self._driver is None:
            raise RuntimeError("no episode: call reset")
        driver, self._driver, self.agents = self._driver, None, []
        return Results(driver.finish())
