"""Tasks of an event loop that must not end: kept running, with visible failures."""

from tern_tasks.kept_tasks import OURS, Failure, KeptTasks, keep_running

__all__ = ["OURS", "Failure", "KeptTasks", "keep_running"]
