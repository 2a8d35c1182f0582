"""Rows of consumer groups."""

from tern_proxy.core.documents.groups import (
    GroupDeclared,
    GroupDeleted,
    GroupDescription,
    GroupPage,
    GroupProgress,
    GroupSettings,
    GroupState,
    Retry,
)
from tern_proxy.core.documents.values import TOPIC_PATTERN, extended
from tern_proxy.routes.confirmation import confirm_with
from tern_proxy.routes.failures import ASKED, BROKER, DECLARED, GROUP, ROUTED
from tern_proxy.routes.groups.groups import delete_group, get_group, list_groups, patch_group, put_group
from tern_proxy.routes.lists import CREATE_ONLY, LIST, sorted_by
from tern_proxy.routes.route import Route, gives, in_query, takes
from tern_wire.errors import (
    AlreadyExists,
    ConfirmationNeeded,
    DiskFull,
    GroupConflict,
    GroupNotFound,
    IllegalGroup,
    IllegalInvisibleTime,
    IllegalTopic,
)
from tern_wire.limits import RETRY_DELAYS_MS
from tern_wire.paths import GROUPS_PATH, JSON, group_path

_GROUP = GroupState(
    group="billing",
    invisible_ms=30_000,
    start="latest",
    max_attempts=16,
    retry=Retry(policy="table", delays_ms=list(RETRY_DELAYS_MS)),
    fifo=False,
    consume=True,
    broadcast=False,
    attributes={},
)
_IS_NEW, _WAS_THERE = (extended(_GROUP, GroupDeclared, created=created) for created in (True, False))
_PROGRESS = GroupProgress(topic="orders", lag=3, leased=1, available=2, parked=0, committed={"broker-a:3": 40})
_EXPONENTIAL = {"retry": {"policy": "exponential", "initial": "5s", "multiplier": 2, "max": "2h"}}
_ONE = group_path("{group}")

ROUTES = (
    Route(
        "GET",
        GROUPS_PATH,
        list_groups,
        id="listGroups",
        tag="groups",
        summary="List consumer groups",
        parameters=(*LIST, sorted_by("name")),
        gives={200: gives(GroupPage(groups=[_GROUP], next_cursor=""), "From the leaders.")},
        errors=(*ASKED, *BROKER, *ROUTED),
        query="?limit=10",
    ),
    Route(
        "GET",
        _ONE,
        get_group,
        id="getGroup",
        tag="groups",
        summary="Describe a consumer group",
        asks=("DESCRIBE group {group}",),
        parameters=(in_query("topic", {"type": "string", "pattern": TOPIC_PATTERN}, "Only this one."),),
        gives={
            200: gives(
                extended(_GROUP, GroupDescription, topics=[_PROGRESS], truncated=False), "Settings and progress."
            )
        },
        errors=(*ASKED, *GROUP, *BROKER, IllegalTopic),
    ),
    Route(
        "PUT",
        _ONE,
        put_group,
        id="putGroup",
        tag="groups",
        summary="Declare a consumer group",
        asks=("CREATE group {group}", "ALTER group {group} if it names settings"),
        is_admin=True,
        parameters=(CREATE_ONLY,),
        takes=takes(GroupSettings, settings={"invisible": "30s", "start": "latest"}, exponential=_EXPONENTIAL),
        gives={200: gives(_WAS_THERE, "It existed; it has these settings now."), 201: gives(_IS_NEW, "It is new.")},
        errors=(*DECLARED, IllegalGroup, IllegalInvisibleTime, GroupConflict, AlreadyExists),
        bodies=((JSON, '{"invisible": "30s", "start": "latest"}'),),
    ),
    Route(
        "PATCH",
        _ONE,
        patch_group,
        id="patchGroup",
        tag="groups",
        summary="Alter a consumer group",
        asks=("ALTER group {group}",),
        is_admin=True,
        takes=takes(GroupSettings, pause={"consume": False}, exponential=_EXPONENTIAL),
        gives={200: gives(_WAS_THERE, "It has these settings now.")},
        errors=(*DECLARED, IllegalGroup, IllegalInvisibleTime, GroupConflict, GroupNotFound),
        bodies=((JSON, '{"consume": true}'),),
    ),
    Route(
        "DELETE",
        _ONE,
        delete_group,
        id="deleteGroup",
        tag="groups",
        summary="Delete a consumer group",
        asks=("DELETE group {group}",),
        is_admin=True,
        parameters=(confirm_with("group"),),
        gives={200: gives(GroupDeleted(group="billing", deleted=True), "It is gone.")},
        errors=(*ASKED, *GROUP, *BROKER, ConfirmationNeeded, DiskFull),
        query="?confirm=billing",
    ),
)
