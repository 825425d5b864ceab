"""A sweep of 1000 runs on one process, on two, on Dask and on Ray, each with two workers that are up already: python benches/sweeps.py"""

import hashlib
import time
import warnings
from concurrent.futures import ProcessPoolExecutor

import fullpipe

SCENARIO = {"duration": "20s", "path": {"rate": "50mbit", "rtt": "40ms"}, "flow": [{"cc": "bbr"}]}
AXES = {"flow.cc": ["bbr", "bbr3", "cubic", "reno"], "path.loss": ["0%", "0.1%", "0.5%", "1%", "2%"]}


def swept(name, executor, alone=None):
    """Seconds of the clock that the sweep takes; a first small one has the workers started and the package imported."""
    fullpipe.sweep(SCENARIO, AXES, executor=executor)
    began = time.perf_counter()
    results = fullpipe.sweep(SCENARIO, AXES, repeats=50, executor=executor)
    took = time.perf_counter() - began
    assert len(results) == 1000
    digest = hashlib.sha256(results.to_json()).hexdigest()[:12]
    than = "" if alone is None else f", {alone / took:.2f} times as fast as one"
    print(f"{name}: {took:.2f} s{than}, results {digest}", flush=True)
    return took


def main():
    warnings.simplefilter("ignore")
    with ProcessPoolExecutor(1) as pool:
        alone = swept("one process", pool)
    with ProcessPoolExecutor(2) as pool:
        swept("two processes", pool, alone)
    try:
        from dask.distributed import Client, LocalCluster
    except ImportError:
        print("Dask is not installed")
    else:
        with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
            swept("Dask", client, alone)
    try:
        import ray
    except ImportError:
        print("Ray is not installed")
    else:
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
        swept("Ray", ray, alone)
        ray.shutdown()
    with ProcessPoolExecutor(1) as pool:
        swept("one process again", pool, alone)


if __name__ == "__main__":
    main()
