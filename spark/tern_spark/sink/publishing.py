"""Exactly once, in the driver: a batch is published with the receipts of its tasks, or given up.

Durable here: `publish` returns when the batch is visible, whole, and Spark notes the batch as done
only then. A driver that dies in between publishes again, and is answered that it has been done.
"""

import json
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote

from tern_client.calls.documents import read_document
from tern_client.transport.blocking_transport import BlockingCaller
from tern_client.transport.calling import call
from tern_client.transport.clock import now_ms
from tern_client.transport.exchange import Request, Response
from tern_spark.sink.options import WriteOptions
from tern_spark.sink.sending import proxies_of
from tern_spark.sink.staging import Receipt
from tern_wire.errors import TernError
from tern_wire.limits_publications import PUBLISHED_TOPICS_MAX
from tern_wire.paths import JSON, publication_path


class Published(NamedTuple):
    """The last batch of a query, and its rows."""

    batch: int
    rows: int


def publish(options: WriteOptions, receipts: Sequence[Receipt], *, is_final: bool) -> Published:
    """Publish the batch of *receipts*, at least one. A query that has published a later batch is
    told that one.

    *is_final*: the query has no other batch. TernError: nothing is visible, or (OutcomeUnknown)
    it is not known whether; a repeat is safe.
    """
    first = receipts[0]
    topics = {topic for receipt in receipts for topic in receipt.topics} | ({options.topic} - {""})
    document = {
        "stages": [
            {"partition": receipt.partition, "attempt": receipt.attempt, "rows": receipt.rows}
            for receipt in receipts
            if receipt.rows
        ],
        "final": is_final,
        "accept_lost_history": options.accepts_lost_history,
        # They tell a new query its broker group; later ones are known by their name.
        "topics": sorted(topics)[:PUBLISHED_TOPICS_MAX],
    }
    path = publication_path(quote(first.query, safe=""), str(first.batch))
    body = json.dumps(document, separators=(",", ":")).encode()
    request = Request("POST", path, (("Content-Type", JSON),), body, repeatable=True, stores=True)
    told = read_document(_ask(options, request))
    return Published(batch=told["batch"], rows=told["rows"])


def give_up(options: WriteOptions, receipts: Sequence[Receipt]) -> None:
    """Drop what is staged for the batch of *receipts*. An error is not raised: the write has failed
    already, with an error of its own, and what stays is dropped when its time is over.
    """
    if not receipts:
        return
    path = publication_path(quote(receipts[0].query, safe=""), str(receipts[0].batch))
    try:
        _ask(options, Request("DELETE", path, repeatable=True))
    except TernError:
        return


def _ask(options: WriteOptions, request: Request) -> Response:
    caller: BlockingCaller = proxies_of(options, 0)
    try:
        return caller.drive(call(caller.course, request, now_ms()))
    finally:
        caller.close()
