"""The training environment."""

import math

import pytest

gymnasium = pytest.importorskip("gymnasium")
numpy = pytest.importorskip("numpy")

import fullpipe  # noqa: E402
from fullpipe.env import OBSERVATIONS, PathEnv  # noqa: E402


def test_environment_conforms_to_the_interface():
    from gymnasium.utils.env_checker import check_env

    check_env(gymnasium.make("fullpipe/Path-v1").unwrapped, skip_render_check=True)
    for action in ("multiplier+pacing", "cwnd", "cwnd+pacing"):
        check_env(PathEnv(action=action, step="20ms", reward="aurora"), skip_render_check=True)


def episode(env, seed, policy):
    observation, _ = env.reset(seed=seed)
    seen, rewards = [observation], []
    while True:
        observation, reward, terminated, truncated, _ = env.step(policy(observation))
        seen.append(observation)
        rewards.append(reward)
        if terminated or truncated:
            return numpy.array(seen), rewards, (terminated, truncated)


def still(_):
    return numpy.zeros(1, numpy.float32)


LOSSY = {
    "duration": "5s",
    "path": {"rate": "10mbit", "rtt": "40ms", "loss": "1%"},
    "flow": [{"cc": "agent"}],
}


def test_seed_determines_the_episode():
    env = PathEnv(LOSSY)
    one, again, other = (episode(env, seed, still) for seed in (1, 1, 2))
    assert numpy.array_equal(one[0], again[0]) and one[1] == again[1]
    assert not numpy.array_equal(one[0], other[0])
    assert one[0].shape[1] == len(OBSERVATIONS) and one[2] == (False, True)


def test_environment_can_move_between_threads():
    from concurrent.futures import ThreadPoolExecutor

    env = PathEnv(LOSSY)
    alone = episode(env, 1, still)
    env.reset(seed=1)
    with ThreadPoolExecutor(1) as other:
        other.submit(env.step, still(None)).result()
        elsewhere = other.submit(episode, env, 1, still).result()
    assert numpy.array_equal(alone[0], elsewhere[0]) and alone[1] == elsewhere[1]


def test_window_follows_the_action_and_fills_the_path():
    env = PathEnv({"duration": "10s", "path": {"rate": "10mbit", "rtt": "40ms", "buffer": "2bdp"}, "flow": [{"cc": "agent"}]}, action="cwnd", info=True)
    place = lambda packets: numpy.array([math.log(packets / 2) / math.log(10_000 / 2)], numpy.float32)  # noqa: E731
    # A bandwidth-delay product is 33 packets.
    rates = {}
    for packets in (16, 24, 50):
        env.reset(seed=1)
        over = False
        while not over:
            _, _, _, over, seen = env.step(place(packets))
            assert abs(seen["cwnd_bytes"] / seen["smss_bytes"] - packets) < 0.1
        summary = env.results().runs()
        rates[packets] = summary["goodput_bps"][0]
    for packets in (16, 24):
        assert 0.9 < rates[packets] / (packets * 1448 * 8 / 0.040) < 1.02, rates
    assert rates[50] > 9e6


def test_episode_terminates_when_all_data_is_sent():
    env = PathEnv({"duration": "60s", "path": {"rate": "10mbit", "rtt": "40ms"}, "flow": [{"cc": "agent", "size": "200k"}]})
    _, _, ended = episode(env, 1, still)
    assert ended == (True, False)
    with pytest.raises(RuntimeError, match="reset"):
        env.step(still(None))


def test_rewards_match_the_papers():
    """Each built-in reward equals its formula over the measurements."""
    rewards = []

    def mine(seen, most_bps, least_rtt):
        delivered = seen["acked_bytes"] * 8 / seen["duration_s"]
        rtt = seen["rtt_mean_s"]
        delay = rtt if rtt > 1.25 * least_rtt else least_rtt
        power = most_bps / least_rtt
        orca = (delivered - 5 * seen["lost_bytes"] * 8 / seen["duration_s"]) / delay / power if power else 0.0
        latency = rtt if rtt > 0 else seen["srtt_s"]
        lost = seen["lost_bytes"] / seen["sent_bytes"] if seen["sent_bytes"] else 0
        rewards.append((orca, 10 * delivered / 8 / seen["smss_bytes"] - 1000 * latency - 2000 * lost, lost))
        return 0.0

    def grow(observation):
        return numpy.full(1, 1.0 if observation[6] < 1 else -0.5, numpy.float32)

    episode(PathEnv(LOSSY, reward=mine), 7, grow)
    orca, aurora, lost = zip(*rewards)
    assert max(lost) > 0 and episode(PathEnv(LOSSY, reward="orca"), 7, grow)[1] == pytest.approx(orca)
    assert episode(PathEnv(LOSSY, reward="aurora"), 7, grow)[1] == pytest.approx(aurora)


def test_errors_are_raised():
    with pytest.raises(fullpipe.ScenarioError, match="agent"):
        PathEnv({"path": {"rate": "10mbit", "rtt": "40ms"}, "flow": [{"cc": "bbr"}]}).reset()
    with pytest.raises(ValueError, match="multiplier"):
        PathEnv(action="rate")
    with pytest.raises(ValueError, match="orca"):
        PathEnv(reward="mine")
    with pytest.raises(ValueError, match="must be a quantity"):
        PathEnv(step="soon")
    env = PathEnv(LOSSY)
    with pytest.raises(RuntimeError, match="reset"):
        env.step(still(None))


def test_several_policies_share_a_path():
    from fullpipe._fullpipe import Episode

    two = fullpipe.Scenario({**LOSSY, "flow": [{"cc": "agent", "count": 2}, {"cc": "cubic"}]}, ["agent"]).cases()
    shared = Episode(two, 0, 3)
    assert len(shared.labels) == 2
    while not shared.done:
        first, second = shared.step([(30_000.0, None), (10_000.0, 1e6)], 0.04)
    results = fullpipe.Results(shared.finish())
    rates = dict(zip(results.flows()["flow"], results.flows()["goodput_bps"]))
    assert len(rates) == 3 and max(rates.values()) < 10e6
    with pytest.raises(ValueError, match="2 agents"):
        Episode(two, 0, 3).step([None], 0.1)
