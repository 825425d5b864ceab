"""Several policies on one path: PettingZoo's parallel interface.

>>> from fullpipe.multi import PathParallelEnv
>>> env = PathParallelEnv({"duration": "30s", "path": {"rate": "20mbit", "rtt": "40ms"},
...                        "flow": [{"cc": "agent", "count": 2, "stagger": "5s"}, {"cc": "cubic"}]})
>>> observations, infos = env.reset(seed=1)
>>> observations, rewards, terminations, truncations, infos = env.step({agent: env.action_space(agent).sample() for agent in env.agents})

Each flow with `cc = "agent"` is an agent by its label; each sees its own flow and gets its own reward. A flow that has not begun yet sees
zeros, and its window is set from its first step on. (Extra `multi`.)
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy
from pettingzoo import ParallelEnv

from ._fullpipe import Driver
from ._run import Results
from .env import Settings, _seen

#: The scenario of an environment that is not given one.
DEFAULT = {
    "duration": "30s",
    "path": {"rate": "20mbit", "rtt": "40ms", "buffer": "1bdp"},
    "flow": [{"cc": "agent", "count": 2}],
}


class PathParallelEnv(ParallelEnv):
    """The flows of `agent` on the path of a scenario. For the arguments see `fullpipe.env.Settings`; a reward of one's own is not had
    here. All agents take a step at a time. An agent is terminated when its flow has sent what it was to send, and gone from then on; all are
    truncated when the scenario's time is over."""

    metadata = {"name": "fullpipe/Path-v1", "render_modes": [], "is_parallelizable": True}

    def __init__(self, scenario: Any = None, *, render_mode: None = None, **settings: Any) -> None:
        self.render_mode = render_mode
        self._settings = Settings(DEFAULT if scenario is None else scenario, **settings)
        if self._settings.own is not None:
            raise ValueError("several agents have one of the built-in rewards")
        self.possible_agents: list[str] = list(self._settings.begin(numpy.random.default_rng(0)).labels)
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
        """What an agent sees: `fullpipe.env.OBSERVATIONS`, of its own flow."""
        return self._spaces[agent][0]

    def action_space(self, agent: str) -> gymnasium.spaces.Box:
        """What it may do."""
        return self._spaces[agent][1]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begins a run, up to the first round-trip time that a flow knows."""
        if seed is not None:
            self._random = gymnasium.utils.seeding.np_random(seed)[0]
        self._driver = self._settings.begin(self._random)
        self.agents = list(self.possible_agents)
        seen = (numpy.array(one, numpy.float32) for one in self._driver.observations())
        return dict(zip(self.agents, seen)), self._infos()

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        """Sets the windows of the agents that there are, and lets a step's time pass."""
        if self._driver is None or not self.agents:
            raise RuntimeError("there is no episode: call reset")
        # Who is gone has sent all; its window does not matter.
        pairs = [self._settings.pair(actions[agent]) if agent in actions else (0.0, 0.0) for agent in self.possible_agents]
        told, whole = self._driver.step_all(pairs)
        by_agent = {agent: one for agent, one in zip(self.possible_agents, told) if agent in self.agents}
        observations = {agent: numpy.array(seen, numpy.float32) for agent, (seen, _, _) in by_agent.items()}
        rewards = {agent: each[self._settings.which] for agent, (_, each, _) in by_agent.items()}
        terminations = {agent: sent for agent, (_, _, sent) in by_agent.items()}
        truncations = {agent: whole for agent in by_agent}
        infos = self._infos()
        self.agents = [agent for agent in self.agents if not (terminations[agent] or whole)]
        return observations, rewards, terminations, truncations, infos

    def _infos(self) -> dict[str, Any]:
        if not self._settings.info:
            return {agent: {} for agent in self.agents}
        return {agent: _seen(self._driver, i) for i, agent in enumerate(self.possible_agents) if agent in self.agents}

    def results(self) -> Results:
        """Ends the episode and gives its recording, like that of any run."""
        if self._driver is None:
            raise RuntimeError("there is no episode: call reset")
        driver, self._driver, self.agents = self._driver, None, []
        return Results(driver.finish())
