# Made by `make blocking` from the file of this name in asynchronous/. Change that one.
"""Calls about topics and consumer groups: declare, alter, delete, list."""

from typing import Unpack

from tern_client.blocking.client import BlockingClient
from tern_client.calls.documents import get_request, read_document
from tern_client.calls.topics import (
    Document,
    GroupOptions,
    TopicOptions,
    TopicRest,
    all_rows,
    delete_request,
    group_request,
    topic_request,
)
from tern_client.transport.clock import now_ms
from tern_wire import paths
from tern_wire.errors import GroupNotFound, TopicNotFound
from tern_wire.names import check_group, check_topic


class BlockingTopicCalls(BlockingClient):
    """Calls of BlockingAdmin about topics and consumer groups."""

    def create_topic(
        self, topic: str, queues: int | None = None, *, only_new: bool = False, **options: Unpack[TopicRest]
    ) -> Document:
        """Create *topic* (by default 8 queues, type MIXED), or change the named settings of an
        existing one.

        TopicConflict when it has more queues than *queues*; AlreadyExists with *only_new*.
        """
        named: TopicOptions = {"queues": queues, **options}
        return read_document(self._call(topic_request("PUT", topic, named, only_new=only_new)))

    def alter_topic(self, topic: str, **options: Unpack[TopicOptions]) -> Document:
        """Change the named settings of *topic*; TopicNotFound."""
        return read_document(self._call(topic_request("PATCH", topic, options)))

    def delete_topic(self, topic: str, *, missing_ok: bool = False) -> None:
        """Delete *topic* with its messages; TopicNotFound unless *missing_ok*.

        After an unknown outcome the call is repeated, and the repeat may find that the topic is
        gone.
        """
        try:
            self._call(delete_request(paths.topic_path(check_topic(topic)), topic))
        except TopicNotFound:
            if not missing_ok:
                raise

    def topic(self, topic: str) -> Document:
        """Return the settings of *topic*, the offsets of its queues, and the groups that read it;
        TopicNotFound.
        """
        return read_document(self._call(get_request(paths.topic_path(check_topic(topic)))))

    def topics(self, q: str = "", *, sort: str = "name") -> list[Document]:
        """Return all topics, or those with *q* in their names. *sort*: name, queues or type; a `-`
        in front reverses the order.
        """
        steps = all_rows(self._course, paths.TOPICS_PATH, "topics", {"q": q, "sort": sort}, now_ms())
        return self._drive(steps)

    def create_group(self, group: str, *, only_new: bool = False, **options: Unpack[GroupOptions]) -> Document:
        """Create *group*, or change the named settings of an existing one; AlreadyExists with
        *only_new*.
        """
        return read_document(self._call(group_request("PUT", group, options, only_new=only_new)))

    def alter_group(self, group: str, **options: Unpack[GroupOptions]) -> Document:
        """Change the named settings of *group*; GroupNotFound, GroupConflict."""
        return read_document(self._call(group_request("PATCH", group, options)))

    def delete_group(self, group: str, *, missing_ok: bool = False) -> None:
        """Delete *group* with its offsets, leases and dead letters; GroupNotFound unless
        *missing_ok*.

        After an unknown outcome the call is repeated, and the repeat may find that the group is
        gone.
        """
        try:
            self._call(delete_request(paths.group_path(check_group(group)), group))
        except GroupNotFound:
            if not missing_ok:
                raise

    def group(self, group: str, topic: str = "") -> Document:
        """Return the settings of *group*, and its progress in each topic or only in *topic*;
        GroupNotFound.
        """
        query = {"topic": check_topic(topic)} if topic else {}
        return read_document(self._call(get_request(paths.group_path(check_group(group)), **query)))

    def groups(self, q: str = "", *, sort: str = "name") -> list[Document]:
        """Return all consumer groups, or those with *q* in their names. *sort* as in `topics`."""
        steps = all_rows(self._course, paths.GROUPS_PATH, "groups", {"q": q, "sort": sort}, now_ms())
        return self._drive(steps)
