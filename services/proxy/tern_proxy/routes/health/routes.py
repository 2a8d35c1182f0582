"""Rows of the routes of tern_service: they have no handler here, and no namespace."""

from prometheus_client import CONTENT_TYPE_LATEST

from tern_proxy.core.documents.health import Health, Readiness
from tern_proxy.routes.route import Gives, Route, gives, in_query
from tern_wire.paths import JSON

_ALIVE = Health(status="alive")
_READY, _NOT_READY = (
    Readiness(
        ready=bool(leader),
        routes=True,
        name_server=True,
        leaders={"broker-a": leader},
        stopping=False,
        room={"bytes of requests in flight": "free", "messages in flight": "free"},
    )
    for leader in ("broker-a-0", "")
)
_METRICS = {CONTENT_TYPE_LATEST: {"schema": {"type": "string"}}}
_SEE = ("DESCRIBE cluster",)

ROUTES = (
    Route(
        "GET",
        "/healthz",
        None,
        id="getHealth",
        tag="health",
        summary="Is it alive?",
        about="Liveness: the event loop runs. `?verbose` returns what runs here.",
        is_anonymous=True,
        parameters=(in_query("verbose", {"type": "string"}, "Include what runs here.", allowEmptyValue=True),),
        gives={200: gives(_ALIVE, "Alive.", kinds=(JSON,))},
    ),
    Route(
        "GET",
        "/readyz",
        None,
        id="getReadiness",
        tag="health",
        summary="Is it ready?",
        about="Readiness: work is accepted. 503 with the reasons while it is not.",
        asks=_SEE,
        gives={
            200: gives(_READY, "Work is accepted.", kinds=(JSON,)),
            503: gives(_NOT_READY, "Not ready; the fields have the reasons.", "Retry-After", kinds=(JSON,)),
        },
    ),
    Route(
        "GET",
        "/metrics",
        None,
        id="getMetrics",
        tag="health",
        summary="Metrics",
        about="Metrics of this process, in Prometheus' text format.",
        asks=_SEE,
        gives={200: Gives(text="Prometheus' text format.", content=_METRICS)},
    ),
    # Without an id: the document does not describe itself.
    *(
        Route(method, "/openapi.json", None, id="", tag="health", summary="The API document", gives={})
        for method in ("GET", "HEAD")
    ),
)
