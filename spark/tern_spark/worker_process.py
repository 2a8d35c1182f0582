"""The process that Spark runs our code in: what it costs beside our code.

PySpark collects garbage behind every task, and behind every call of a planner. Modules are never
garbage, and there are 90,000 objects of them (PyArrow, NumPy, PySpark): looking at them takes 23 ms
in a fresh process of a quiet machine, as long as reading 6,000 rows of 1 KiB.
"""

import gc
from functools import cache


@cache
def spare_modules() -> None:
    """Keep everything that this process has so far out of its garbage collections.

    Called by tasks and planners, which Spark runs in worker processes of its own, when all modules
    are imported. The first call of a process counts: what comes later may be garbage.
    """
    gc.freeze()
