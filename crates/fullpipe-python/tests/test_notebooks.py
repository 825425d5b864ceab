"""The notebooks run completely and draw their plots."""

import contextlib
import io
import json
import os
import shutil
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
SCENARIOS = NOTEBOOKS.parent.parent.parent / "scenarios"


def cells(name):
    for cell in json.loads((NOTEBOOKS / f"{name}.ipynb").read_text("utf-8"))["cells"]:
        assert not cell.get("outputs"), f"{name}.ipynb must be saved without outputs"
        if cell["cell_type"] == "code":
            yield "".join(cell["source"])


def execute(name, directory, monkeypatch):
    """Run the cells in order. Returns the output, the variables, and the number of plots."""
    matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.close("all")
    # In a temporary directory with the layout of the checkout.
    shutil.copytree(SCENARIOS, directory / "scenarios")
    place = directory / "crates" / "fullpipe-python" / "notebooks"
    place.mkdir(parents=True)
    monkeypatch.chdir(place)
    variables, printed = {"__name__": "__main__"}, io.StringIO()
    with contextlib.redirect_stdout(printed):
        for number, text in enumerate(cells(name)):
            exec(compile(text, f"{name}.ipynb, cell {number}", "exec"), variables)
    kept = os.environ.get("FULLPIPE_NOTEBOOK_PICTURES")
    for number in pyplot.get_fignums():
        if kept:
            pyplot.figure(number).savefig(Path(kept) / f"{name}-{number}.png")
    return printed.getvalue(), variables, len(pyplot.get_fignums())


def test_fig8(tmp_path, monkeypatch):
    printed, variables, _ = execute("fig8", tmp_path, monkeypatch)
    assert variables["made"].passed, printed
    code = list(cells("fig8"))[0].strip().splitlines()
    assert len([line for line in code if line]) <= 5


def test_sweep(tmp_path, monkeypatch):
    pytest.importorskip("dask.distributed", reason="dask is not installed")
    pytest.importorskip("pyarrow")
    monkeypatch.setenv("FULLPIPE_NOTEBOOK_RUNS", os.environ.get("FULLPIPE_NOTEBOOK_RUNS", "200"))
    printed, variables, pictures = execute("sweep", tmp_path, monkeypatch)
    assert "flow.cc=bbr3" in printed and pictures == 1
    runs = variables["columns"]
    assert set(runs["flow.cc"]) == {"bbr", "bbr3", "cubic", "reno"}
    mean = lambda cc, loss: sum(b for b, c, p in zip(runs["goodput_bps"], runs["flow.cc"], runs["path.loss"]) if (c, p) == (cc, loss))  # noqa: E731
    assert mean("bbr", "3%") > 2 * mean("reno", "3%")


def test_policy(tmp_path, monkeypatch):
    pytest.importorskip("gymnasium")
    monkeypatch.setenv("FULLPIPE_NOTEBOOK_GENERATIONS", os.environ.get("FULLPIPE_NOTEBOOK_GENERATIONS", "1"))
    if "FULLPIPE_NOTEBOOK_LAB" not in os.environ:
        # Takes two minutes of real time; only on request.
        monkeypatch.setenv("FULLPIPE", str(tmp_path / "none"))
    printed, variables, pictures = execute("policy", tmp_path, monkeypatch)
    assert pictures == 2 and len(variables["history"]) == variables["GENERATIONS"], printed
    runs = variables["simulated"].runs()
    rates = {}
    for cc, bps in zip(runs["cc"], runs["goodput_bps"]):
        rates.setdefault(cc, []).append(bps)
    assert min(rates["policy:lossy-varying.json"]) > 1.5 * max(rates["cubic"])
