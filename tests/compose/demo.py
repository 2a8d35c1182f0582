"""The flights job of profile demo: 336,776 messages through the deployment, read by a Spark cluster in containers."""

import json
import time

from tests.compose.acceptance import Run

_WITHIN_S = 1_500.0
SPARK = ("spark-master", "spark-worker-0", "spark-worker-1")


def flights(run: Run) -> None:
    """The job ends well, which says that its table is the one that pandas makes of the data set, as `make run` does."""
    profile = ("--profile", "demo")
    began_s = time.monotonic()
    run.engine.compose(*profile, "up", "-d", "--wait", "--no-build", *SPARK)
    run.figures["spark_up_s"] = round(time.monotonic() - began_s, 1)
    try:
        job = ("run", "--rm", "-T", "flights", "ternmq", "demo", "flights", "--data-dir", "/data", "-o", "json")
        told = run.engine.compose(*profile, *job, within_s=_WITHIN_S)
        figures = json.loads(told[told.index("{") :])
        assert figures["sent"] == figures["acked"] == figures["spark_rows"], figures
        run.figures["flights"] = figures
    finally:
        run.engine.compose(*profile, "rm", "-s", "-f", *SPARK, check=False)
