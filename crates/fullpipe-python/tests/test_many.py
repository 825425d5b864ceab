"""Vectorised environments, and several agents on one path."""

import pytest

gymnasium = pytest.importorskip("gymnasium")
numpy = pytest.importorskip("numpy")

import fullpipe  # noqa: E402
from fullpipe.env import PathEnv, PathVectorEnv  # noqa: E402

SHORT = {"duration": "2s", "path": {"rate": "10mbit", "rtt": "40ms", "loss": "1%"}, "flow": [{"cc": "agent"}]}


def test_vectorised_environments_equal_single_ones():
    many = gymnasium.make_vec("fullpipe/Path-v1", num_envs=3, scenario=SHORT, reward="remy", info=True)
    assert isinstance(many.unwrapped, PathVectorEnv)
    seen, infos = many.reset(seed=7)
    assert many.observation_space.contains(seen) and infos["cwnd_bytes"].shape == (3,)
    alone = [PathEnv(SHORT, reward="remy") for _ in range(3)]
    own = [env.reset(seed=7 + i)[0] for i, env in enumerate(alone)]
    random = numpy.random.default_rng(1)
    was_over = [False] * 3
    episodes = 0
    for _ in range(120):
        assert numpy.array_equal(seen, numpy.array(own))
        actions = random.uniform(-0.3, 0.3, (3, 1)).astype(numpy.float32)
        seen, rewards, terminated, truncated, _ = many.step(actions)
        for i, env in enumerate(alone):
            if was_over[i]:
                # The step after the end starts the next episode and has no reward.
                own[i], _ = env.reset()
                assert rewards[i] == 0 and not terminated[i] and not truncated[i]
                was_over[i] = False
                episodes += 1
                continue
            own[i], reward, ended, cut, _ = env.step(actions[i])
            assert (rewards[i], terminated[i], truncated[i]) == (reward, ended, cut)
            was_over[i] = ended or cut
    assert episodes >= 3
    with pytest.raises(ValueError, match="2 seeds for 3"):
        many.reset(seed=[1, 2])


def test_vector_errors_are_raised():
    with pytest.raises(RuntimeError, match="reset"):
        PathVectorEnv(2, SHORT).step(numpy.zeros((2, 1)))
    with pytest.raises(fullpipe.ScenarioError, match="fullpipe.multi"):
        PathEnv({**SHORT, "flow": [{"cc": "agent", "count": 2}]}).reset()


def test_parallel_environment_conforms_to_the_interface():
    pytest.importorskip("pettingzoo", reason="pettingzoo is not installed")
    from fullpipe.multi import PathParallelEnv
    from pettingzoo.test import parallel_api_test, parallel_seed_test

    parallel_api_test(PathParallelEnv({**SHORT, "flow": [{"cc": "agent", "count": 2}]}), num_cycles=200)
    parallel_seed_test(lambda: PathParallelEnv({**SHORT, "flow": [{"cc": "agent", "count": 2}]}))


def test_agents_share_a_path_and_end_independently():
    pytest.importorskip("pettingzoo", reason="pettingzoo is not installed")
    from fullpipe.multi import PathParallelEnv

    env = PathParallelEnv(
        {
            "duration": "6s",
            "path": {"rate": "10mbit", "rtt": "40ms", "buffer": "2bdp"},
            "flow": [{"cc": "agent", "label": "short", "size": "100k"}, {"cc": "agent", "label": "long"}, {"cc": "cubic"}],
        },
        reward="remy",
        info=True,
    )
    assert env.possible_agents == ["short", "long"]
    env.reset(seed=1)
    ended = {}
    still = numpy.zeros(1, numpy.float32)
    while env.agents:
        active = list(env.agents)
        _, rewards, terminations, truncations, infos = env.step({agent: still for agent in active})
        assert list(rewards) == active
        for agent in active:
            if terminations[agent] or truncations[agent]:
                ended[agent] = (terminations[agent], truncations[agent], infos[agent]["time_s"])
    assert ended["short"][:2] == (True, False) and ended["short"][2] < 3
    assert ended["long"][:2] == (False, True) and ended["long"][2] == pytest.approx(6)
    flows = env.results().flows()
    assert flows["flow"] == ["short", "long", "cubic"]
    with pytest.raises(RuntimeError, match="reset"):
        env.step({})
    with pytest.raises(ValueError, match="built-in"):
        PathParallelEnv(reward=lambda *_: 0.0)
