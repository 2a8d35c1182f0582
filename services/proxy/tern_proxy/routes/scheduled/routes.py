"""Rows of scheduled messages."""

from tern_proxy.core.documents.scheduled import ScheduledMessage, ScheduledMessages
from tern_proxy.core.scheduled import CURSOR_LENGTH_MAX
from tern_proxy.routes.failures import ASKED, BROKER, TOPIC
from tern_proxy.routes.lists import continued, moment
from tern_proxy.routes.reference.examples import EXAMPLE_NAMES
from tern_proxy.routes.route import Gives, Route, gives, number
from tern_proxy.routes.scheduled.scheduled import LISTED_DEFAULT, delete_scheduled, get_scheduled
from tern_wire.errors import AlreadyDelivered, NotScheduled, RecallHandleInvalid
from tern_wire.limits import SCHEDULED_LISTED_MAX
from tern_wire.paths import scheduled_path

_WAITS = ScheduledMessage(
    message_id=EXAMPLE_NAMES["message_id"],
    queue="broker-a:3",
    deliver_at=1_767_229_200_000,
    born_at=1_767_225_600_000,
    body_size=14,
    recall_handle=EXAMPLE_NAMES["recall_handle"],
    tag="created",
)
_OF_TOPIC = (*ASKED, *TOPIC, *BROKER)

ROUTES = (
    Route(
        "GET",
        scheduled_path("{topic}"),
        get_scheduled,
        id="listScheduled",
        tag="delayed messages",
        summary="Messages that wait for their delivery time",
        asks=("DESCRIBE topic {topic}",),
        parameters=(
            moment("from", "Delivered then or later."),
            moment("to", "Delivered before."),
            number("limit", 1, SCHEDULED_LISTED_MAX, LISTED_DEFAULT, "Largest number of messages."),
            continued(maxLength=CURSOR_LENGTH_MAX),
        ),
        gives={200: gives(ScheduledMessages(topic="orders", messages=[_WAITS]), "In order of delivery.")},
        errors=_OF_TOPIC,
        query="?limit=10",
    ),
    Route(
        "DELETE",
        scheduled_path("{topic}", "{recall_handle}"),
        delete_scheduled,
        id="recallMessage",
        tag="delayed messages",
        summary="Recall a scheduled message",
        asks=("PUB topic {topic}",),
        gives={204: Gives(text="It will not be delivered.")},
        errors=(*_OF_TOPIC, RecallHandleInvalid, NotScheduled, AlreadyDelivered),
    ),
)
