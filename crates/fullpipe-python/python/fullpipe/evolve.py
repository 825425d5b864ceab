"""Training without gradients: an evolution strategy, in numpy.

>>> from fullpipe.evolve import evolve
>>> policy = evolve([scenario], generations=100, seed=1)
>>> policy.save("mine.json")

Salimans, Ho, Chen, Sidor, Sutskever: "Evolution Strategies as a Scalable Alternative to Reinforcement Learning", arXiv 1703.03864, 2017:
weights are disturbed by noise, each noise together with its opposite (mirrored sampling); the weights move along the noises, by the ranks
of what they earned (fitness shaping), with Adam. All of a generation go through the same runs, with seeds that change from generation
to generation; the episodes are gone through in Rust (`fullpipe._fullpipe.rollout`), on all cores.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy

from . import _fullpipe
from ._policy import Policy
from ._run import Scenario
from .env import OBSERVATIONS, REWARDS

Layers = list[tuple[Any, Any]]


def _layers(weights: Any, sizes: Sequence[int]) -> Layers:
    """A vector of numbers as layers."""
    layers, at = [], 0
    for wide, out in zip(sizes, sizes[1:]):
        matrix = weights[at : at + wide * out].reshape(out, wide)
        at += wide * out
        layers.append((matrix, weights[at : at + out]))
        at += out
    return layers


def earned(
    policy: _fullpipe.Policy, scenarios: Sequence[Any], seed: int, reward: str = "remy", step: float | None = None, most: int = 1000
) -> float:
    """What a policy earns: the mean over the runs of all `scenarios` (one flow of each has `cc = "agent"`) of the reward, each step
    weighted by its length; a window is at most `most` packets."""
    runs = [(cases, n) for cases in map(_cases, scenarios) for n in range(len(cases))]
    which = REWARDS.index(reward)
    return float(numpy.mean([_fullpipe.rollout(cases, n, seed, policy, step, most)[1][which] for cases, n in runs]))


def _cases(scenario: Any) -> _fullpipe.Cases:
    return scenario if isinstance(scenario, _fullpipe.Cases) else Scenario(scenario, ["agent"]).cases()


def evolve(
    scenarios: Sequence[Any],
    *,
    generations: int = 100,
    pairs: int = 12,
    hidden: Sequence[int] = (12,),
    sigma: float = 0.1,
    rate: float = 0.05,
    reward: str = "remy",
    step: float | None = None,
    most: int = 1000,
    action: str = "multiplier",
    seed: int = 1,
    start: Policy | None = None,
    about: str = "",
    workers: int = 0,
    progress: Callable[[int, float, Policy], Any] | None = None,
) -> Policy:
    """A policy that earns much of `reward` in the runs of all `scenarios`, after so many `generations` of 2 x `pairs` policies.

    hidden: sizes of the layers between observation and action. sigma: the noise's deviation. rate: how far a step goes. most: the greatest
    window in packets; many of the first policies never stop growing theirs, and what they send has to be simulated. action: "multiplier",
    or "multiplier+pacing" for a policy that sets its pacing rate, too. start: a policy to go
    on from, of the same sizes. progress: hears the generation, the mean that its policies earned, and the policy so far. The same seed
    gives the same policy, on however many `workers`.
    """
    if reward not in REWARDS:
        raise ValueError(f'reward="{reward}": it is {", ".join(REWARDS)}')
    cases = [_cases(scenario) for scenario in scenarios]
    if not cases:
        raise ValueError("there is no scenario to train in")
    random = numpy.random.default_rng(seed)
    outputs = 2 if action == "multiplier+pacing" else 1
    sizes = [len(OBSERVATIONS), *hidden, outputs]
    if start is None:
        # Glorot and Bengio 2010; an action near zero to begin with, which keeps the window.
        parts = [
            numpy.concatenate([random.normal(0, (2 / (wide + out)) ** 0.5 * (0.1 if last else 1), wide * out), numpy.zeros(out)])
            for wide, out, last in zip(sizes, sizes[1:], [False] * len(hidden) + [True])
        ]
        weights = numpy.concatenate(parts)
    else:
        weights = numpy.concatenate([numpy.concatenate([numpy.ravel(w), numpy.ravel(b)]) for w, b in start.layers])
        if len(weights) != sum(wide * out + out for wide, out in zip(sizes, sizes[1:])):
            raise ValueError(f"start: {start!r} has not the sizes {sizes}")
    mean, square = numpy.zeros_like(weights), numpy.zeros_like(weights)
    ranks = numpy.linspace(-0.5, 0.5, 2 * pairs)
    with ThreadPoolExecutor(workers or os.cpu_count()) as pool:
        for generation in range(1, generations + 1):
            noise = random.normal(size=(pairs, len(weights)))
            both = numpy.concatenate([noise, -noise])
            run_seed = int(random.integers(1 << 31))

            def value(of: Any, run_seed: int = run_seed) -> float:
                return earned(Policy(_layers(of, sizes), action=action), cases, run_seed, reward, step, most)

            values = numpy.array(list(pool.map(value, weights + sigma * both)))
            shaped = numpy.empty(2 * pairs)
            shaped[numpy.argsort(values, kind="stable")] = ranks
            gradient = shaped @ both / (2 * pairs * sigma)
            # Kingma and Ba 2015, with their constants.
            mean = 0.9 * mean + 0.1 * gradient
            square = 0.999 * square + 0.001 * gradient**2
            weights = weights + rate * (mean / (1 - 0.9**generation)) / (numpy.sqrt(square / (1 - 0.999**generation)) + 1e-8)
            if progress is not None:
                progress(generation, float(values.mean()), Policy(_layers(weights, sizes), about=about, action=action))
    return Policy(_layers(weights, sizes), about=about, action=action)
