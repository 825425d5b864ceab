"""Who makes the parts of a sweep: anything with `submit`, and thin adapters for those that have another way in."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

Work = Callable[..., Any]


def workers(executor: Any) -> int:
    """How many parts are made at a time, as far as the executor tells."""
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


def submitter(executor: Any) -> Any:
    """What has `submit` as concurrent.futures has it."""
    if _is_ray(executor):
        return _OnRay(executor)
    if hasattr(executor, "get_executor"):
        # A dask.distributed client. What is not pure is not taken from its cache.
        return executor.get_executor(pure=False)
    if not callable(getattr(executor, "submit", None)):
        raise TypeError(
            f"executor={executor!r}: it must have `submit` as concurrent.futures has it, or be a dask.distributed client, the module "
            "`ray`, or a `joblib.Parallel`"
        )
    return executor


def in_a_batch(executor: Any) -> Callable[[Work, Sequence[tuple[Any, ...]]], Iterator[Any]] | None:
    """For those that take all their work at once (joblib): a function that gives what comes of it, in its order."""
    if not _is_joblib(executor):
        return None

    def made(work: Work, tasks: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        import joblib

        # As it was configured; a list if it was not told `return_as="generator"`.
        return iter(executor(joblib.delayed(work)(*task) for task in tasks))

    return made


class _OnRay:
    """Tasks on a Ray cluster. Ray itself makes again what was lost with its worker, as often as a task may be retried."""

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
