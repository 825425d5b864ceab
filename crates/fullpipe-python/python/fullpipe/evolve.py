"""Training without gradients: an evolution strategy in numpy.

>>> from fullpipe.evolve import evolve
>>> policy = evolve([scenario], generations=100, seed=1)
>>> policy.save("mine.json")

Salimans, Ho, Chen, Sidor, Sutskever: "Evolution Strategies as a Scalable Alternative to Reinforcement Learning", arXiv 1703.03864, 2017:
weights are perturbed by noise in both directions (mirrored sampling) and moved along the noise by the ranks of the rewards (fitness
shaping), with Adam. All policies of a generation run the same episodes; the seeds change with each generation. Episodes are simulated
in Rust (`fullpipe._fullpipe.rollout`), on all cores.
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
    """Convert a vector of weights to layers."""
    layers, at = [], 0
    for wide, out in zip(sizes, sizes[1:]):
        matrix = weights[at : at + wide * out].reshape(out, wide)
        at += wide * out
        layers.append((matrix, weights[at : at + out]))
        at += out
    return layers


def evaluate(
    policy: _fullpipe.Policy, scenarios: Sequence[Any], seed: int, reward: str = "remy", step: float | None = None, max_window: int = 1000
) -> float:
    """Evaluate a policy: the time-weighted mean reward over the runs of all `scenarios`, in each of which one flow has `cc = "agent"`. The
    window is limited to `max_window` packets."""
    runs = [(cases, n) for cases in map(_cases, scenarios) for n in range(len(cases))]
    index = REWARDS.index(reward)
    return float(numpy.mean([_fullpipe.rollout(cases, n, seed, policy, step, max_window)[1][index] for cases, n in runs]))


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
    max_window: int = 1000,
    action: str = "multiplier",
    seed: int = 1,
    start: Policy | None = None,
    about: str = "",
    workers: int = 0,
    progress: Callable[[int, float, Policy], Any] | None = None,
) -> Policy:
    """Train a policy to maximise `reward` in the runs of all `scenarios`, over `generations` of 2 x `pairs` policies.

    hidden: sizes of the hidden layers. sigma: standard deviation of the noise. rate: learning rate. step: step length in seconds, or
    None for a round trip. max_window: maximum window in packets; it bounds the cost of early policies whose window grows without end.
    action: "multiplier", or "multiplier+pacing" for a policy that also sets its pacing rate. start: a policy of the same sizes to
    continue from. about: description of the policy. progress: a function that is called with the generation, the mean reward of its
    policies, and the current policy. The same seed gives the same policy with any number of `workers` (0: all cores).
    """
    if reward not in REWARDS:
        raise ValueError(f'reward must be one of {", ".join(REWARDS)}, got "{reward}"')
    cases = [_cases(scenario) for scenario in scenarios]
    if not cases:
        raise ValueError("no scenarios to train in")
    random = numpy.random.default_rng(seed)
    outputs = 2 if action == "multiplier+pacing" else 1
    sizes = [len(OBSERVATIONS), *hidden, outputs]
    if start is None:
        # Glorot and Bengio 2010; initial actions near zero, which keep the window.
        parts = [
            numpy.concatenate([random.normal(0, (2 / (wide + out)) ** 0.5 * (0.1 if last else 1), wide * out), numpy.zeros(out)])
            for wide, out, last in zip(sizes, sizes[1:], [False] * len(hidden) + [True])
        ]
        weights = numpy.concatenate(parts)
    else:
        weights = numpy.concatenate([numpy.concatenate([numpy.ravel(w), numpy.ravel(b)]) for w, b in start.layers])
        if len(weights) != sum(wide * out + out for wide, out in zip(sizes, sizes[1:])):
            raise ValueError(f"start must have the layer sizes {sizes}, got {start!r}")
    mean, square = numpy.zeros_like(weights), numpy.zeros_like(weights)
    ranks = numpy.linspace(-0.5, 0.5, 2 * pairs)
    with ThreadPoolExecutor(workers or os.cpu_count()) as pool:
        for generation in range(1, generations + 1):
            noise = random.normal(size=(pairs, len(weights)))
            both = numpy.concatenate([noise, -noise])
            run_seed = int(random.integers(1 << 31))

            def value(vector: Any, run_seed: int = run_seed) -> float:
                return evaluate(Policy(_layers(vector, sizes), action=action), cases, run_seed, reward, step, max_window)

            values = numpy.array(list(pool.map(value, weights + sigma * both)))
            shaped = numpy.empty(2 * pairs)
            shaped[numpy.argsort(values, kind="stable")] = ranks
            gradient = shaped @ both / (2 * pairs * sigma)
            # Adam (Kingma and Ba 2015) with its default constants.
            mean = 0.9 * mean + 0.1 * gradient
            square = 0.999 * square + 0.001 * gradient**2
            weights = weights + rate * (mean / (1 - 0.9**generation)) / (numpy.sqrt(square / (1 - 0.999**generation)) + 1e-8)
            if progress is not None:
                progress(generation, float(values.mean()), Policy(_layers(weights, sizes), about=about, action=action))
    return Policy(_layers(weights, sizes), about=about, action=action)
