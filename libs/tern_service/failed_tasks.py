"""Metrics of tasks that failed and were restarted."""

from collections.abc import Iterable

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from tern_tasks import OURS, KeptTasks


class FailedTasks(Collector):
    """`<namespace>_failed_tasks_total` by task; empty without failures."""

    def __init__(self, namespace: str, tasks: KeptTasks = OURS) -> None:
        self._name, self._tasks = f"{namespace}_failed_tasks", tasks

    def collect(self) -> Iterable[Metric]:
        """The present values."""
        failed = CounterMetricFamily(self._name, "Tasks that failed and were restarted", labels=["task"])
        for name, failure in self._tasks.failures().items():
            failed.add_metric([name], float(failure.count))
        yield failed
