"""Sweeps give the same results with every executor."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor

import fullpipe
import pytest
from fullpipe import _sweep

SCENARIO = {
    "duration": "2s",
    "path": {"rate": "10mbit", "rtt": "20ms"},
    "flow": [{"cc": "bbr"}],
}
AXES = {"flow.cc": ["bbr", "cubic"], "path.loss": ["0%", "0.5%", "1%"]}


def test_threads_processes_and_local_runs_give_the_same_bytes():
    here = fullpipe.sweep(SCENARIO, AXES, repeats=4)
    assert len(here) == 24 and here.runs()["seed"][:4] == [1, 2, 3, 4]
    with ProcessPoolExecutor(2) as pool:
        processes = fullpipe.sweep(SCENARIO, AXES, repeats=4, executor=pool)
    with ThreadPoolExecutor(3) as pool:
        threads = fullpipe.sweep(SCENARIO, AXES, repeats=4, executor=pool)
    assert processes.to_json() == here.to_json() == threads.to_json()
    assert processes.numbers == list(range(24))


class Lossy:
    """An executor that sometimes loses workers."""

    def __init__(self, losses):
        self.losses, self.given, self._max_workers = losses, 0, 2

    def submit(self, work, *args):
        self.given += 1
        future = Future()
        if self.losses > 0 and self.given % 2:
            self.losses -= 1
            future.set_exception(ConnectionError("the worker is gone"))
        else:
            future.set_result(work(*args))
        return future


def test_parts_of_lost_workers_are_retried():
    here = fullpipe.sweep(SCENARIO, AXES)
    lossy = Lossy(3)
    assert fullpipe.sweep(SCENARIO, AXES, executor=lossy).to_json() == here.to_json()
    assert lossy.losses == 0
    with pytest.warns(RuntimeWarning, match="the worker is gone"):
        dead = Lossy(10**9)
        dead.submit = lambda work, *args: failed()
        assert fullpipe.sweep(SCENARIO, AXES, executor=dead).to_json() == here.to_json()


def failed():
    future = Future()
    future.set_exception(ConnectionError("the worker is gone"))
    return future


def dies_once(*task, made=_sweep._part):
    """Kill the worker after its first part, before it returns the result."""
    part = made(*task)
    try:
        os.close(os.open(os.environ["FULLPIPE_TEST_MARK"], os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return part
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_process_changes_nothing(tmp_path, monkeypatch):
    here = fullpipe.sweep(SCENARIO, AXES)
    monkeypatch.setenv("FULLPIPE_TEST_MARK", str(tmp_path / "mark"))
    monkeypatch.setattr(_sweep, "_part", dies_once)
    with ProcessPoolExecutor(2) as pool, pytest.warns(RuntimeWarning, match="locally"):
        assert fullpipe.sweep(SCENARIO, AXES, executor=pool).to_json() == here.to_json()
    assert (tmp_path / "mark").exists()


def test_errors_are_raised_before_anything_runs(tmp_path):
    with pytest.raises(fullpipe.ScenarioError, match="los"):
        fullpipe.sweep(SCENARIO, {"path.los": ["1%"]}, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def files(path):
    return {str(f.relative_to(path)): f.read_bytes() for f in path.rglob("*") if f.is_file()}


def test_data_set_is_resumed_and_never_mixed(tmp_path):
    pytest.importorskip("pyarrow")
    whole = fullpipe.sweep(SCENARIO, AXES, repeats=4, out=tmp_path / "whole")
    table = whole.table()
    here = fullpipe.sweep(SCENARIO, AXES, repeats=4).runs()
    assert table["run"].to_pylist() == here["run"]
    assert table["goodput_bps"].to_pylist() == here["goodput_bps"]
    assert sorted(d.name for d in (tmp_path / "whole" / "runs").iterdir()) == ["flow.cc=bbr", "flow.cc=cubic"]

    # Existing parts are not rerun: the files keep their inodes.
    inodes = {f: f.stat().st_ino for f in (tmp_path / "whole").rglob("*.parquet")}
    fullpipe.sweep(SCENARIO, AXES, repeats=4, out=tmp_path / "whole")
    assert {f: f.stat().st_ino for f in (tmp_path / "whole").rglob("*.parquet")} == inodes

    with pytest.raises(ValueError, match="another sweep"):
        fullpipe.sweep(SCENARIO, AXES, repeats=5, out=tmp_path / "whole")


def test_killed_sweep_is_resumed(tmp_path):
    pytest.importorskip("pyarrow")
    out = tmp_path / "killed"
    program = (
        "import sys, fullpipe\n"
        f"fullpipe.sweep({SCENARIO!r}, {AXES!r}, repeats=200, out=sys.argv[1])"
    )
    child = subprocess.Popen([sys.executable, "-c", program, str(out)])
    try:
        deadline = time.monotonic() + 120
        while not (out / "done").exists() or not any((out / "done").iterdir()):
            assert time.monotonic() < deadline and child.poll() is None
            time.sleep(0.01)
    finally:
        child.kill()
        child.wait()
    before = {f for f in files(out) if f.startswith("done/")}
    data = fullpipe.sweep(SCENARIO, AXES, repeats=200, out=out)
    assert before <= set(files(out))
    fresh = fullpipe.sweep(SCENARIO, AXES, repeats=200, out=tmp_path / "fresh")
    assert data.table().equals(fresh.table()) and data.table().num_rows == 1200
    read = [f for f in out.rglob("*") if f.is_file() and f.name.startswith(".")]
    assert all(str(child.pid) in f.name for f in read), "only the temporary file of the killed process is left"
