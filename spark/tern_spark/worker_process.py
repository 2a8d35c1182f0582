"""The process that Spark runs our code in: what it costs beside our code.

PySpark collects garbage behind every task, and behind every call of a planner. Modules are never
garbage, and there are 200,000 objects of them (PyArrow, NumPy, PySpark): looking at them takes some
50 ms, as long as reading 15,000 rows of 1 KiB.
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
