"""Tasks of an event loop: those that must not end are kept running, with visible failures; others
begin at once.
"""

from tern_tasks.begun import begin, rest_of
from tern_tasks.kept_tasks import OURS, Failure, KeptTasks, keep_running

__all__ = ["OURS", "Failure", "KeptTasks", "begin", "keep_running", "rest_of"]
