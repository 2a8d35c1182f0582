"""Rows of planned reads."""

from tern_proxy.core.documents.reads import (
    LeasedQueue,
    LeasedTopic,
    ListedLeasedTopic,
    ListedReadLease,
    PlannedQueue,
    PlannedTopic,
    ReadLease,
    ReadLeaseRenewal,
    ReadLeaseRequest,
    ReadLeases,
    ReadLeaseTimes,
    ReadPlan,
    ReadPlanRequest,
)
from tern_proxy.core.documents.values import extended
from tern_proxy.routes.failures import ASKED, BROKER, READ, ROUTED, TOPIC
from tern_proxy.routes.reads.leases import delete_read_lease, list_read_leases, post_read_lease, put_read_lease
from tern_proxy.routes.reads.plans import post_read_plan
from tern_proxy.routes.reference.examples import EXAMPLE_NAMES
from tern_proxy.routes.route import Gives, Route, gives, takes
from tern_wire.errors import (
    DiskFull,
    LimitReached,
    MessageTooLarge,
    OffsetExpired,
    QueueNotFound,
    ReadLeaseBroken,
    ReadLeaseNotFound,
    UpgradeUnfinished,
)
from tern_wire.paths import JSON, READ_LEASES_PATH, READ_PLAN_PATH, read_lease_path

_QUEUE = PlannedQueue(
    queue="broker-a:3", min_offset=0, max_offset=43, begin=0, measured_to=43, size_bytes=9_460, cuts=[18, 36]
)
_PLAN = ReadPlan(topics=[PlannedTopic(topic="orders", queues=[_QUEUE])], is_complete=True, size_bytes=9_460)
_NAME = EXAMPLE_NAMES["lease"]
_TIMES = ReadLeaseTimes(lease=_NAME, taken_at=1_767_225_600_000, leased_until=1_767_229_200_000)
_LEASE = extended(
    _TIMES,
    ReadLease,
    topics=[LeasedTopic(topic="orders", queues=[LeasedQueue(queue="broker-a:3", begin=0, end=43)])],
)
_LISTED = ListedReadLease(
    lease=_NAME,
    owner="archive",
    taken_at=1_767_225_600_000,
    leased_until=1_767_229_200_000,
    broken_by="",
    topics=[ListedLeasedTopic(topic="orders", queues=8, messages=344)],
)
_ONE, _OF_LEASE = read_lease_path("{lease}"), ("SUB topic of the lease",)

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
    Route(
        "POST",
        READ_LEASES_PATH,
        post_read_lease,
        id="takeReadLease",
        tag="topics",
        summary="Keep ranges from retention",
        asks=("SUB topic of the body",),
        takes=takes(
            ReadLeaseRequest,
            is_needed=True,
            topics={"topics": [{"topic": "orders"}], "for": "1h"},
            ranges={"topics": [{"topic": "orders", "begin": {"broker-a:3": 0}, "end": {"broker-a:3": 43}}]},
        ),
        gives={201: gives(_LEASE, "What is kept.", "Location")},
        errors=(
            *(*ASKED, *READ, *TOPIC, *BROKER, QueueNotFound, LimitReached, MessageTooLarge),
            *(OffsetExpired, DiskFull, UpgradeUnfinished),
        ),
        bodies=((JSON, '{"topics": [{"topic": "orders"}], "for": "1h"}'),),
    ),
    Route(
        "GET",
        READ_LEASES_PATH,
        list_read_leases,
        id="listReadLeases",
        tag="topics",
        summary="List read leases",
        gives={200: gives(ReadLeases(leases=[_LISTED]), "Of the topics that the caller may see.")},
        errors=(*ASKED, *BROKER, *ROUTED),
    ),
    Route(
        "PUT",
        _ONE,
        put_read_lease,
        id="renewReadLease",
        tag="topics",
        summary="Renew a read lease",
        asks=_OF_LEASE,
        takes=takes(ReadLeaseRenewal, renewal={"for": "1h"}),
        gives={200: gives(_TIMES, "It lasts longer.")},
        errors=(
            *(*ASKED, *READ, *BROKER, ReadLeaseNotFound, ReadLeaseBroken, MessageTooLarge, DiskFull),
            UpgradeUnfinished,
        ),
        bodies=((JSON, '{"for": "1h"}'),),
    ),
    Route(
        "DELETE",
        _ONE,
        delete_read_lease,
        id="endReadLease",
        tag="topics",
        summary="End a read lease",
        asks=_OF_LEASE,
        gives={204: Gives(text="Retention may drop its messages.")},
        errors=(*ASKED, *BROKER, ReadLeaseNotFound, DiskFull, UpgradeUnfinished),
    ),
)
