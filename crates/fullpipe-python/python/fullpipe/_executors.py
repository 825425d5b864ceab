"""Executors for the parts of a sweep: anything with `submit`, and adapters for other interfaces."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

Work = Callable[..., Any]


def worker_count(executor: Any) -> int:
    """Number of parts that the executor runs at a time."""
    if executor is None:
        return 1
    if _is_ray(executor):
        return max(1, int(_ray(executor).cluster_resources().get("CPU", 1)))
    if _is_joblib(executor):
        import joblib

        jobs = int(executor.n_jobs)
        return jobs if jobs > 0 else max(1, joblib.cpu_count() + 1 + jobs)
    if hasattr(executor, "ncores"):
        return max(1, sum(executor.ncores().values()))
    return int(getattr(executor, "_max_workers", None) or os.cpu_count() or 1)


def as_submitter(executor: Any) -> Any:
    """Adapt the executor to `submit` of concurrent.futures."""
    if _is_ray(executor):
        return _RayExecutor(executor)
    if hasattr(executor, "get_executor"):
        # A dask.distributed client; pure=False bypasses its cache.
        return executor.get_executor(pure=False)
    if not callable(getattr(executor, "submit", None)):
        raise TypeError(
            f"executor must have `submit` like concurrent.futures, or be a dask.distributed client, the module `ray`, or a "
            f"`joblib.Parallel`; got {executor!r}"
        )
    return executor


def as_batch_runner(executor: Any) -> Callable[[Work, Sequence[tuple[Any, ...]]], Iterator[Any]] | None:
    """For executors that take all tasks at once (joblib): a function that returns the results in order."""
    if not _is_joblib(executor):
        return None

    def run(work: Work, tasks: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        import joblib

        # A list unless configured with `return_as="generator"`.
        return iter(executor(joblib.delayed(work)(*task) for task in tasks))

    return run


class _RayExecutor:
    """Tasks on a Ray cluster. Ray itself retries tasks of lost workers."""

    def __init__(self, ray: ModuleType):
        self._ray = _ray(ray)

    def submit(self, work: Work, *args: Any) -> Any:
        return self._ray.remote(work).remote(*args).future()


def _is_ray(executor: Any) -> bool:
    return isinstance(executor, ModuleType) and executor.__name__ == "ray"


def _ray(ray: Any) -> Any:
    if not ray.is_initialized():
        ray.init()
    return ray


def _is_joblib(executor: Any) -> bool:
    return hasattr(executor, "n_jobs") and hasattr(executor, "return_as") and callable(executor)
