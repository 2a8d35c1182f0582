"""Rows of producer groups. Their checks are in the rows of transactions."""

import msgspec

from tern_proxy.core.documents.producer_groups import (
    ProducerGroupDeclared,
    ProducerGroupPage,
    ProducerGroupSettings,
    ProducerGroupState,
    ProducerGroupStats,
)
from tern_proxy.core.documents.values import extended
from tern_proxy.routes.failures import ASKED, BROKER, DECLARED, ROUTED, Errors
from tern_proxy.routes.lists import CURSOR, LIMIT
from tern_proxy.routes.producer_groups.producer_groups import (
    delete_producer_group,
    get_producer_group,
    list_producer_groups,
    put_producer_group,
)
from tern_proxy.routes.route import Gives, Route, gives, takes
from tern_wire.errors import CheckUrlForbidden, DiskFull, IllegalGroup, ProducerGroupBusy, ProducerGroupNotFound
from tern_wire.paths import JSON, PRODUCER_GROUPS_PATH, producer_group_path

_GROUP = ProducerGroupState(
    producer_group="shop",
    check_url="https://hooks.example.com/checks",
    has_secret=True,
    timeout_ms=3_000,
    max_checks=15,
    check_after_ms=6_000,
    check_interval_ms=30_000,
    include_body=False,
)
_WAS_THERE = extended(_GROUP, ProducerGroupDeclared, created=False)
_IS_NEW = extended(
    _GROUP,
    ProducerGroupDeclared,
    created=True,
    check_secret="whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",  # noqa: S106 - an example, and nobody's
)
_COUNTED = msgspec.structs.replace(
    _GROUP, stats=ProducerGroupStats(open=2, expired=0, committed=940, rolled_back=12, checks=31)
)
_ONE = producer_group_path("{producer_group}")
_FOUND: Errors = (IllegalGroup, ProducerGroupNotFound, *ROUTED)

ROUTES = (
    Route(
        "PUT",
        _ONE,
        put_producer_group,
        id="putProducerGroup",
        tag="producer groups",
        summary="Declare a producer group",
        asks=("CREATE producer-group {producer_group}", "ALTER producer-group {producer_group} if it names settings"),
        is_admin=True,
        takes=takes(
            ProducerGroupSettings,
            pull={"check_after": "10s", "max_checks": 15},
            callback={"check_url": "https://hooks.example.com/checks", "timeout": "3s"},
        ),
        gives={200: gives(_WAS_THERE, "It existed; it has these settings now."), 201: gives(_IS_NEW, "It is new.")},
        errors=(*DECLARED, IllegalGroup, CheckUrlForbidden),
        bodies=((JSON, '{"check_after": "10s", "max_checks": 15}'),),
    ),
    Route(
        "GET",
        _ONE,
        get_producer_group,
        id="getProducerGroup",
        tag="producer groups",
        summary="Describe a producer group",
        asks=("DESCRIBE producer-group {producer_group}",),
        gives={200: gives(_COUNTED, "Settings and statistics.")},
        errors=(*ASKED, *BROKER, *_FOUND),
    ),
    Route(
        "DELETE",
        _ONE,
        delete_producer_group,
        id="deleteProducerGroup",
        tag="producer groups",
        summary="Delete a producer group",
        asks=("DELETE producer-group {producer_group}",),
        is_admin=True,
        gives={204: Gives(text="It is gone.")},
        errors=(*ASKED, *BROKER, *_FOUND, ProducerGroupBusy, DiskFull),
    ),
    Route(
        "GET",
        PRODUCER_GROUPS_PATH,
        list_producer_groups,
        id="listProducerGroups",
        tag="producer groups",
        summary="List producer groups",
        parameters=(LIMIT, CURSOR),
        gives={200: gives(ProducerGroupPage(producer_groups=[_COUNTED], next_cursor=""), "From the leaders.")},
        errors=(*ASKED, *BROKER, *ROUTED),
        query="?limit=10",
    ),
)
