"""The command line, this process, processes, joblib, Dask and Ray write the same Parquet bytes for 200 runs with one seed, even if a
worker is killed."""

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import warnings
from concurrent.futures import ProcessPoolExecutor

import fullpipe
import pytest
from fullpipe import _sweep

PROGRAM = os.environ.get("FULLPIPE") or shutil.which("fullpipe")

SCENARIO = """
title = "two hundred runs"
duration = "1s"
sample = "100ms"
repeats = 20
[path]
rate = "10mbit"
rtt = "20ms"
[[flow]]
cc = "bbr"
[sweep]
"flow.cc" = ["bbr", "cubic"]
"path.loss" = ["0%", "0.5%", "1%", "2%", "5%"]
"""


def parquet(results, directory):
    """The hash of the results as a Parquet file."""
    assert len(results) == 200
    file = directory / "runs.parquet"
    results.report(file)
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    return parquet(fullpipe.run(SCENARIO), tmp_path_factory.mktemp("here"))


def swept(executor):
    return fullpipe.sweep(SCENARIO, executor=executor, series=True)


def test_the_command_line(here, tmp_path):
    if PROGRAM is None:
        pytest.skip("the program fullpipe is not installed: set FULLPIPE")
    file, out = tmp_path / "scenario.toml", tmp_path / "runs.parquet"
    file.write_text(SCENARIO)
    subprocess.run([PROGRAM, "run", file, "--out", out], check=True, stdout=subprocess.DEVNULL)
    assert hashlib.sha256(out.read_bytes()).hexdigest() == here


def test_processes(here, tmp_path):
    with ProcessPoolExecutor(2) as pool:
        assert parquet(swept(pool), tmp_path) == here


def test_joblib(here, tmp_path):
    joblib = pytest.importorskip("joblib", reason="joblib is not installed")
    assert parquet(swept(joblib.Parallel(n_jobs=2)), tmp_path) == here
    assert parquet(swept(joblib.Parallel(n_jobs=2, return_as="generator")), tmp_path) == here


class Interrupted:
    """An executor with joblib's interface that loses a worker after the first part of a batch."""

    n_jobs, return_as = 2, "generator"

    def __init__(self, losses):
        self.losses, self.batches = losses, []

    def __call__(self, tasks):
        tasks = list(tasks)
        self.batches.append(len(tasks))
        for i, (work, args, _) in enumerate(tasks):
            if i == 1 and self.losses > 0:
                self.losses -= 1
                raise ConnectionError("the worker is gone")
            yield work(*args)


def test_joblib_with_a_lost_worker(here, tmp_path):
    pytest.importorskip("joblib", reason="joblib is not installed")
    once = Interrupted(1)
    assert parquet(swept(once), tmp_path) == here
    assert once.batches[1] == once.batches[0] - 1, "received parts are not retried"
    with pytest.warns(RuntimeWarning, match="the worker is gone"):
        assert parquet(swept(Interrupted(10)), tmp_path) == here


@contextlib.contextmanager
def only_ours():
    """Ignore the warnings of a cluster about its event loop, ports and killed worker; local runs are errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", message="the executor failed")
        yield


@pytest.fixture
def killed(monkeypatch, tmp_path):
    """Kill the first worker that has run a part before it returns it; yields the path of its mark."""
    mark, made = str(tmp_path / "killed"), _sweep._part

    # A nested function is pickled by value, so workers do not need this file.
    def once(*task):
        part = made(*task)
        try:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return part
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(_sweep, "_part", once)
    return tmp_path / "killed"


def test_dask_with_a_killed_worker(here, tmp_path, request):
    distributed = pytest.importorskip("dask.distributed", reason="dask is not installed")
    with only_ours():
        with (
            distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
            distributed.Client(cluster) as client,
        ):
            assert parquet(swept(client), tmp_path) == here
            mark = request.getfixturevalue("killed")
            assert parquet(swept(client), tmp_path) == here
            assert mark.exists(), "no worker was killed"


@pytest.mark.cluster
def test_ray_with_a_killed_worker(here, tmp_path, request):
    ray = pytest.importorskip("ray", reason="ray is not installed")
    with only_ours():
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
        try:
            assert parquet(swept(ray), tmp_path) == here
            mark = request.getfixturevalue("killed")
            assert parquet(swept(ray), tmp_path) == here
            assert mark.exists(), "no worker was killed"
        finally:
            ray.shutdown()


def test_joblib_with_a_killed_worker(here, tmp_path, killed):
    joblib = pytest.importorskip("joblib", reason="joblib is not installed")
    assert parquet(swept(joblib.Parallel(n_jobs=2)), tmp_path) == here
    assert killed.exists(), "no worker was killed"


def test_invalid_executor_is_an_error():
    with pytest.raises(TypeError, match="joblib.Parallel"):
        fullpipe.sweep(SCENARIO, executor=7)
