"""Where a topic's keyed and ordered messages go: shown, and changed. Ordinary FastAPI routes over topic_homes.py."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from tern_proxy.core.topic_documents import placement_document
from tern_proxy.proxy import Proxy
from tern_proxy.routes.documents import read_document, refuse_query, respond
from tern_proxy.routes.topic_homes import describe_placement, place_topic
from tern_wire.errors import InvalidField
from tern_wire.limits import PLACEMENT_GROUPS_MAX
from tern_wire.messages import PlacementSettings
from tern_wire.names import check_topic
from tern_wire.paths import placement_path


def placement_router(proxy: Proxy) -> APIRouter:
    """The routes of *proxy*."""
    router = APIRouter(default_response_class=Response)

    async def get_placement(request: Request, topic: str) -> Response:
        """Which broker groups take the topic's keyed and ordered messages, which did before, and whether some still move."""
        refuse_query(request)
        return respond(request, placement_document(topic, *await describe_placement(proxy, check_topic(topic))))

    async def put_placement(request: Request, topic: str) -> Response:
        """Place the topic on `broker_groups`: those that lack it get it. Keyed and ordered messages move over while they are sent and received.

        Nothing is stored twice or overtaken. The same again completes what was broken off, and ends the move as soon as it can end: after
        10 minutes, and when every message group's earlier messages are settled. `left` says what keeps it. 409 while another move goes on.
        """
        check_topic(topic)
        settings = await read_document(request, PlacementSettings)
        wanted = tuple(sorted(set(settings.broker_groups)))
        if not 0 < len(wanted) <= PLACEMENT_GROUPS_MAX:
            reason = f"A topic is placed on 1 to {PLACEMENT_GROUPS_MAX} broker groups"
            raise InvalidField(reason=reason, pointer="/broker_groups")
        changed, left = await place_topic(proxy, topic, wanted)
        document = placement_document(topic, *await describe_placement(proxy, topic))
        return respond(request, {**document, "changed": changed, "left": left})

    for method, handler in (("GET", get_placement), ("PUT", put_placement)):
        router.add_api_route(placement_path("{topic}"), handler, methods=[method], tags=["topics"])
    return router
