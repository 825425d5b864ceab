"""Runs and their tables."""

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time

import fullpipe
import pytest

PROGRAM = os.environ.get("FULLPIPE") or shutil.which("fullpipe")

FILE = """
title = "a short race"
duration = "3s"
seed = 5
[path]
rate = "20mbit"
rtt = "30ms"
loss = "0.5%"
[[flow]]
cc = "bbr"
[sweep]
"flow.cc" = ["bbr", "cubic"]
"path.loss" = ["0%", "1%"]
[[check]]
goodput = ">= 1mbit"
"""


def test_race_gives_the_same_bytes_as_the_command_line(tmp_path):
    if PROGRAM is None:
        pytest.skip("the program fullpipe is not installed: set FULLPIPE")
    out = tmp_path / "race.json"
    command = [PROGRAM, "race", "bbr", "cubic:hystart=off", "--rate", "20mbit", "--rtt", "30ms", "--duration", "2s", "--seed", "9"]
    subprocess.run([*command, "--sweep", "loss=0.1%,1%", "--out", out], check=True, stdout=subprocess.DEVNULL)
    ours = fullpipe.race(
        ["bbr", "cubic:hystart=off"], rate="20mbit", rtt="30ms", duration="2s", seed=9, sweep={"loss": ["0.1%", "1%"]}
    )
    assert ours.to_json() == out.read_bytes()
    assert fullpipe.load(out).to_json() == ours.to_json()

    scenario = tmp_path / "scenario.toml"
    scenario.write_text(FILE)
    subprocess.run([PROGRAM, "run", scenario, "--out", out], check=False, stdout=subprocess.DEVNULL)
    assert fullpipe.run(scenario).to_json() == out.read_bytes()


def test_file_text_and_dictionary_are_equivalent(tmp_path):
    path = tmp_path / "scenario.toml"
    path.write_text(FILE)
    from_file = fullpipe.run(path)
    assert len(from_file) == 4
    assert fullpipe.run(FILE).to_json() == from_file.to_json()
    as_table = fullpipe.Scenario(FILE).to_dict()
    assert fullpipe.run(as_table).to_json() == from_file.to_json()
    other = fullpipe.run(path, seed=6)
    assert other.runs()["seed"] == [6] * 4
    assert other.to_json() != from_file.to_json()


def test_tables_have_swept_parameters_as_text_and_numbers():
    results = fullpipe.run(FILE)
    runs = results.runs()
    assert runs["run"] == [0, 1, 2, 3]
    assert runs["flow.cc"] == ["bbr", "bbr", "cubic", "cubic"]
    assert runs["path.loss"] == ["0%", "1%", "0%", "1%"]
    assert runs["path.loss.value"] == [0.0, 0.01, 0.0, 0.01]
    assert all(15e6 < rate < 20e6 for rate in runs["goodput_bps"][:2])
    assert runs["base_rtt_ms"] == [30.0] * 4
    assert runs["checks_failed"] == [0] * 4
    flows = results.flows()
    assert len(flows) == 4 and flows["cc"] == runs["cc"]
    with pytest.raises(KeyError, match="no column `goodput`; the columns are .*goodput_bps"):
        runs["goodput"]
    states = results.states().to_dict()
    assert {state for run, state in zip(states["run"], states["state"]) if run == 0} >= {"Startup", "Drain"}


def test_tables_support_the_arrow_interface():
    pyarrow = pytest.importorskip("pyarrow")
    results = fullpipe.run(FILE)
    for table in (results.runs(), results.flows(), results.series(), results.states()):
        arrow = pyarrow.table(table)
        assert arrow.num_rows == len(table) > 0
        assert arrow.column_names == table.columns
        first = table.columns[0]
        assert arrow[first].to_pylist() == table[first]
    schema = pyarrow.schema(results.series())
    assert schema.field("rtt_ms").type == pyarrow.float64()
    rtts = pyarrow.table(results.series())["rtt_ms"]
    assert rtts.null_count > 0, "links have no RTT"


def test_results_can_be_pickled():
    results = fullpipe.run(FILE)
    again = pickle.loads(pickle.dumps(results))
    assert again.to_json() == results.to_json() and again.title == results.title


def test_errors_have_position_and_help(tmp_path):
    with pytest.raises(fullpipe.ScenarioError) as error:
        fullpipe.run(FILE.replace("rtt", "rtd"))
    assert (error.value.line, error.value.column) == (7, 1) and "rtt" in error.value.help
    with pytest.raises(fullpipe.ScenarioError, match="bbr"):
        fullpipe.race(["bbbr"])
    with pytest.raises(fullpipe.ScenarioError, match="no option `rtd`"):
        fullpipe.race(["bbr"], rtd="10ms")
    with pytest.raises(fullpipe.ScenarioError, match="rate"):
        fullpipe.race(["bbr"], rate="fast")
    with pytest.raises(ValueError, match='"sim"'):
        fullpipe.race(["bbr"], engine="ns3")
    with pytest.raises(FileNotFoundError):
        fullpipe.run(tmp_path / "none.toml")
    with pytest.raises(TypeError, match="not set"):
        fullpipe.run({"path": {1, 2}})
    with pytest.raises(ValueError, match="not fullpipe results"):
        broken = tmp_path / "broken.json"
        broken.write_text("{")
        fullpipe.load(broken)
    results = fullpipe.race(["bbr"], duration="1s")
    with pytest.raises(ValueError, match=".pdf"):
        results.report(tmp_path / "x.pdf")
    with pytest.raises(OSError, match="does not exist"):
        results.report(tmp_path / "none" / "x.html")


def test_reports_are_written(tmp_path):
    results = fullpipe.race(["bbr", "cubic"], duration="2s")
    for name in ["x.html", "x.csv", "x.png", "x.parquet", "x.json"]:
        results.report(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000, name
    assert json.loads((tmp_path / "x.json").read_bytes())["schema"] == "fullpipe/recording/1"
    assert "bbr" in repr(results)
    page = results._repr_html_()
    assert page.count("<tr>") == 3 and page.count("<polyline") == 2


def test_pictures_are_drawn(tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    results = fullpipe.run(FILE, repeats=2)
    ax = results.plot()
    assert {line.get_label() for line in ax.get_lines()} >= {"bbr", "cubic"}
    ax.figure.savefig(tmp_path / "sweep.png")
    ax = fullpipe.race(["bbr", "cubic"], duration="2s").plot("rtt_ms")
    assert len(ax.get_lines()) == 2
    with pytest.raises(ValueError, match="goodput_bps"):
        results.plot("nothing")


def test_other_threads_run_and_progress_is_reported():
    progress, ticks = [], []
    finished = threading.Event()

    def tick():
        while not finished.is_set():
            ticks.append(time.monotonic())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        fullpipe.race(["bbr", "cubic"], rate="200mbit", duration="20s", series=False, progress=progress.append)
    finally:
        finished.set()
        thread.join()
    assert progress and progress == sorted(progress) and progress[-1] == 1.0
    assert len(ticks) > 5, "the GIL was held"


def test_exception_in_progress_ends_the_run():
    def stop(part):
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        fullpipe.race(["bbr"], rate="1gbit", duration="1000s", series=False, progress=stop)


def test_ctrl_c_ends_the_run():
    program = "import fullpipe\nprint('on', flush=True)\nfullpipe.race(['bbr'], rate='1gbit', duration='10000s', series=False)"
    child = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        assert child.stdout.readline() == "on\n"
        time.sleep(0.3)
        child.send_signal(signal.SIGINT)
        _, output = child.communicate(timeout=120)
    finally:
        child.kill()
        child.wait()
    assert child.returncode != 0 and "KeyboardInterrupt" in output


def test_figures_are_reproduced_and_checked():
    assert len(fullpipe.figures()) >= 18
    made = fullpipe.figure("fig1")
    assert made.passed and made.findings and made.png.startswith(b"\x89PNG")
    with pytest.raises(fullpipe.ScenarioError, match="no figure"):
        fullpipe.figure("fig99")


class Steady:
    """A constant window of 20 packets."""

    def __init__(self, smss, initial_cwnd):
        self.cwnd = 20 * smss
        self.acked = 0

    def on_ack(self, event):
        self.acked += event["acked_bytes"]
        assert event["now_s"] > 0 and event["inflight_bytes"] >= 0


OWN = """
duration = "5s"
[path]
rate = "100mbit"
rtt = "100ms"
[[flow]]
cc = "steady"
"""


def test_controllers_in_python_are_raced():
    results = fullpipe.run(OWN, controllers={"steady": Steady})
    # Twenty packets per round trip.
    assert results.runs()["cc"] == ["steady"]
    assert 20 * 1448 * 8 / 0.1 * 0.9 < results.runs()["goodput_bps"][0] < 20 * 1448 * 8 / 0.1 * 1.05


def test_exception_in_a_controller_ends_the_run_with_its_traceback():
    class Broken(Steady):
        def on_ack(self, event):
            return event["no such thing"]

    with pytest.raises(KeyError, match="no such thing") as error:
        fullpipe.run(OWN, controllers={"steady": Broken})
    assert any(entry.name == "on_ack" for entry in error.traceback)

    class Greedy(Steady):
        def on_ack(self, event):
            self.cwnd = float("inf")

    with pytest.raises(ValueError, match="1e12 bytes"):
        fullpipe.run(OWN, controllers={"steady": Greedy})
    with pytest.raises(fullpipe.ScenarioError, match="steady"):
        fullpipe.run(OWN)
