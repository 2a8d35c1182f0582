"""GET /metrics in Prometheus' text format, with a registry for each service.

Names are `ternmq_<service>_<what>_<unit>`.
"""

from fastapi import FastAPI
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest
from starlette.responses import Response

from tern_service.failed_tasks import FailedTasks


def add_metrics(app: FastAPI, registry: CollectorRegistry, *, service: str = "") -> None:
    """Serve *registry* at /metrics, with this process's own metrics added.
    These are RSS (bytes), CPU time (seconds), open files and failed tasks, such as
    `ternmq_<service>_process_resident_memory_bytes` (without *service*: `ternmq_process_...`).
    ValueError if *registry* has them already.
    """
    namespace = f"ternmq_{service}" if service else "ternmq"
    ProcessCollector(namespace=namespace, registry=registry)
    registry.register(FailedTasks(namespace))

    async def metrics() -> Response:
        """What this process counts, in Prometheus' text format."""
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    app.add_api_route("/metrics", metrics, methods=["GET"], response_class=Response, tags=["health"])
