"""Policies: trained in the environment, and run by the simulator and on kernel TCP."""

import json
import math
import os
import pickle
import shutil
import subprocess

import pytest

gymnasium = pytest.importorskip("gymnasium")
numpy = pytest.importorskip("numpy")

import fullpipe  # noqa: E402
from fullpipe._fullpipe import rollout  # noqa: E402
from fullpipe.env import PathEnv  # noqa: E402
from fullpipe.evolve import evaluate, evolve  # noqa: E402

PROGRAM = os.environ.get("FULLPIPE") or shutil.which("fullpipe")

#: A hand-written layer: grows without a queue, shrinks with the queue.
HAND = fullpipe.Policy([([[0, 0, -1.0, 0, 0, 0, 0, 0]], [0.25])], about="by hand")

SCENARIO = {"duration": "10s", "path": {"rate": "10mbit", "rtt": "40ms", "loss": "1%", "buffer": "2bdp"}, "flow": [{"cc": "agent"}]}


def test_policy_reads_back_from_its_file(tmp_path):
    file = tmp_path / "hand.json"
    HAND.save(file)
    assert json.loads(file.read_text())["schema"] == "fullpipe/policy/1"
    again = fullpipe.Policy.load(file)
    assert again.to_json() == HAND.to_json() == pickle.loads(pickle.dumps(HAND)).to_json()
    assert again.about == "by hand" and repr(again) == "<fullpipe.Policy 8-1 tanh>"
    with pytest.raises(ValueError, match="a row of 7 weights, expected 8"):
        fullpipe.Policy([([[0.0] * 7], [0.0])])
    with pytest.raises(ValueError, match="softsign"):
        fullpipe.Policy([([[0.0] * 8], [0.0])], activation="gelu")
    with pytest.raises(ValueError, match="missing field"):
        fullpipe.Policy.from_json("{}")


def test_decisions_equal_numpy():
    random = numpy.random.default_rng(1)
    first, second = random.normal(size=(12, 8)), random.normal(size=(1, 12)) / 8
    policy = fullpipe.Policy([(first, numpy.full(12, 0.1)), (second, [0.05])])
    for _ in range(20):
        seen = random.normal(size=8)
        wanted = numpy.clip(second @ numpy.tanh(first @ seen + 0.1) + 0.05, -1, 1)
        assert policy(seen) == pytest.approx(wanted, abs=1e-6)


def test_rollout_equals_the_loop_over_the_environment():
    for reward, which in (("orca", 0), ("aurora", 1), ("remy", 2)):
        env = PathEnv(SCENARIO, reward=reward, info=True)
        seen, _ = env.reset(seed=3)
        rewards, done = [], False
        while not done:
            seen, reward_now, terminated, truncated, info = env.step(HAND(seen))
            rewards.append((reward_now, info["duration_s"]))
            done = terminated or truncated
        # The environment draws the run's seed from that of reset.
        drawn = int(gymnasium.utils.seeding.np_random(3)[0].integers(1 << 31))
        cases = fullpipe.Scenario(SCENARIO, ["agent"]).cases()
        sums, weighted, steps = rollout(cases, 0, drawn, HAND, None, 10_000)
        assert steps == len(rewards) and sums[which] == pytest.approx(sum(r for r, _ in rewards), rel=1e-12)
        whole = sum(took for _, took in rewards)
        assert weighted[which] == pytest.approx(sum(r * took for r, took in rewards) / whole, rel=1e-9)


#: The same with a pacing rate of three quarters of a window per round trip.
PACED = fullpipe.Policy([([[0, 0, -1.0, 0, 0, 0, 0, 0], [0.0] * 8], [0.25, -0.415])], action="multiplier+pacing", about="by hand")


def test_policy_can_set_the_pacing_rate(tmp_path):
    env = PathEnv(SCENARIO, action=PACED.action, info=True)
    seen, _ = env.reset(seed=3)
    done, ratios = False, []
    while not done:
        rtt = env.measurements().get("rtt_mean_s")
        seen, _, terminated, truncated, info = env.step(PACED(seen))
        done = terminated or truncated
        if rtt is not None:
            ratios.append(info["pacing_bps"] * rtt / (info["cwnd_bytes"] * 8))
    assert len(ratios) > 100 and max(abs(ratio - 0.75) for ratio in ratios) < 0.001
    drawn = int(gymnasium.utils.seeding.np_random(3)[0].integers(1 << 31))
    cases = fullpipe.Scenario(SCENARIO, ["agent"]).cases()
    assert rollout(cases, 0, drawn, PACED, None, 10_000)[2] >= len(ratios)
    PACED.save(tmp_path / "paced.json")
    again = fullpipe.Policy.load(tmp_path / "paced.json")
    assert again.to_json() == PACED.to_json() == pickle.loads(pickle.dumps(PACED)).to_json() and again.action == "multiplier+pacing"
    file = tmp_path / "scenario.toml"
    file.write_text('duration = "5s"\n[path]\nrate = "10mbit"\nrtt = "40ms"\n[[flow]]\ncc = "policy:paced.json"\n')
    series = fullpipe.run(file).series()
    rates = [rate for rate, kind in zip(series["pacing_bps"], series["kind"]) if kind == "flow" and rate]
    assert len(rates) > 20 and 1e6 < max(rates) < 2e7
    learnt = evolve([{**SCENARIO, "duration": "2s"}], generations=1, pairs=2, hidden=(3,), action="multiplier+pacing")
    assert learnt.action == "multiplier+pacing" and len(learnt([0] * 8)) == 2
    with pytest.raises(ValueError, match="expected 2:"):
        fullpipe.Policy(HAND.layers, action="multiplier+pacing")
    with pytest.raises(ValueError, match="one of multiplier, multiplier.pacing"):
        fullpipe.Policy(HAND.layers, action="rate")


def test_window_is_bounded():
    up = fullpipe.Policy([([[0.0] * 8], [1.0])])
    env = PathEnv({**SCENARIO, "duration": "2s"}, max_window=200, info=True)
    env.reset(seed=1)
    windows = [env.step(up([0] * 8))[4]["cwnd_bytes"] for _ in range(12)]
    assert windows[0] < 200 * 1448 and windows[-1] == 200 * 1448


def test_simulator_runs_a_policy_file(tmp_path):
    HAND.save(tmp_path / "hand.json")
    file = tmp_path / "scenario.toml"
    file.write_text(
        'duration = "20s"\nrepeats = 2\n[path]\nrate = "10mbit"\nrtt = "40ms"\nloss = "1%"\nbuffer = "2bdp"\n[[flow]]\ncc = "cubic"\n'
        '[sweep]\n"flow.cc" = ["policy:hand.json", "cubic"]\n'
    )
    results = fullpipe.run(file)
    runs = results.runs()
    assert runs["cc"] == ["policy:hand.json"] * 2 + ["cubic"] * 2
    # 1 % random loss, without a queue.
    assert min(runs["goodput_bps"][:2]) > 9e6 > 1.5 * max(runs["goodput_bps"][2:])
    assert max(runs["rtt_p50_ms"][:2]) < 60
    if PROGRAM is None:
        pytest.skip("the program fullpipe is not installed: set FULLPIPE")
    out = tmp_path / "out.json"
    subprocess.run([PROGRAM, "run", file, "--out", out], check=True, stdout=subprocess.DEVNULL)
    assert out.read_bytes() == results.to_json()


def test_invalid_policy_files_are_errors(tmp_path):
    file = tmp_path / "scenario.toml"
    (tmp_path / "bad.json").write_text(HAND.to_json().replace("[0.25]", "[0.25, 1]"))
    for cc, message in (("policy:none.json", "cannot read .*none.json"), ("policy:bad.json", "bad.json is not a valid policy: layer 0")):
        file.write_text(f'[path]\nrate = "10mbit"\nrtt = "40ms"\n[[flow]]\ncc = "{cc}"\n')
        with pytest.raises(fullpipe.ScenarioError, match=message) as error:
            fullpipe.run(file)
        assert (error.value.line, error.value.column) == (5, 6)


def test_evolution_learns_and_is_independent_of_the_number_of_workers():
    still = fullpipe.Policy([([[0.0] * 8], [0.0])])
    short = {**SCENARIO, "duration": "4s"}
    reports = []
    report = lambda *of: reports.append(of)  # noqa: E731
    kwargs = {"generations": 12, "pairs": 6, "hidden": (4,), "seed": 5, "rate": 0.15}
    policy = evolve([short], workers=2, progress=report, **kwargs)
    assert evolve([short], workers=1, **kwargs).to_json() == policy.to_json()
    assert len(reports) == 12 and reports[-1][2].to_json() == policy.to_json()
    # Ten packets a round trip are a third of the path.
    assert evaluate(policy, [short], 99) > evaluate(still, [short], 99) + 0.5
    with pytest.raises(ValueError, match="must have the layer sizes"):
        evolve([short], generations=1, hidden=(5,), start=policy)
    further = evolve([short], generations=1, pairs=2, hidden=(4,), start=policy)
    moved = [numpy.abs(numpy.subtract(a[0], b[0])).max() for a, b in zip(policy.layers, further.layers)]
    assert 0 < max(moved) < 0.1


def test_kernel_tcp_runs_a_policy(tmp_path):
    if PROGRAM is None:
        pytest.skip("the program fullpipe is not installed: set FULLPIPE")
    HAND.save(tmp_path / "hand.json")
    file = tmp_path / "scenario.toml"
    file.write_text(
        'duration = "6s"\nwarmup = "2s"\n[path]\nrate = "10mbit"\nrtt = "40ms"\nloss = "1%"\nbuffer = "2bdp"\n'
        '[[flow]]\ncc = "policy:hand.json"\n'
    )
    try:
        lab = fullpipe.run(file, engine="lab", seed=2)
    except fullpipe.RunError as e:
        pytest.skip(f"kernel TCP not available: {e}")
    runs = lab.runs()
    assert runs["engine"] == ["lab"]
    series = lab.series()
    windows = [w for w, kind in zip(series["cwnd_bytes"], series["kind"]) if kind == "flow" and w and math.isfinite(w)]
    assert len(set(windows)) > 3, "the policy changes the window"
    # It starts with ten packets on a path of 33, unless the machine delays ACKs as well.
    if runs["valid"] == [True]:
        assert max(windows) > 20 * 1448 and runs["goodput_bps"][0] > 8e6
