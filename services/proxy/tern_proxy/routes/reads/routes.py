"""Rows of planned reads."""

from tern_proxy.core.documents.reads import PlannedQueue, PlannedTopic, ReadPlan, ReadPlanRequest
from tern_proxy.routes.failures import ASKED, BROKER, READ, TOPIC
from tern_proxy.routes.reads.plans import post_read_plan
from tern_proxy.routes.route import Route, gives, takes
from tern_wire.errors import LimitReached, MessageTooLarge, QueueNotFound
from tern_wire.paths import JSON, READ_PLAN_PATH

_QUEUE = PlannedQueue(
    queue="broker-a:3", min_offset=0, max_offset=43, begin=0, measured_to=43, size_bytes=9_460, cuts=[18, 36]
)
_PLAN = ReadPlan(topics=[PlannedTopic(topic="orders", queues=[_QUEUE])], is_complete=True, size_bytes=9_460)

ROUTES = (
    Route(
        "POST",
        READ_PLAN_PATH,
        post_read_plan,
        id="planRead",
        tag="topics",
        summary="Plan a read of many topics",
        asks=("DESCRIBE topic of the body",),
        takes=takes(
            ReadPlanRequest,
            is_needed=True,
            offsets={"topics": [{"topic": "orders"}]},
            time={"topics": [{"topic": "orders", "time": "2026-01-31T12:00:00Z"}]},
            parts={"topics": [{"topic": "orders"}], "sizes": True, "step_bytes": 4096},
            budget={
                "topics": [{"topic": "orders", "begin": {"broker-a:3": 0}, "budget_bytes": {"broker-a:3": 1048576}}]
            },
        ),
        gives={200: gives(_PLAN, "Every queue of every topic.")},
        errors=(*ASKED, *READ, *TOPIC, *BROKER, QueueNotFound, LimitReached, MessageTooLarge),
        bodies=((JSON, '{"topics": [{"topic": "orders"}], "sizes": true, "step_bytes": 4096}'),),
    ),
)
