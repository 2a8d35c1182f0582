# Made from libs/tern_client/asynchronous/topics.py by `make blocking`: change that file, not this one.
"""Calls about topics and groups: declare, alter, delete, list."""

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
    """What BlockingAdmin can do about topics and groups."""

    def create_topic(
        self, topic: str, queues: int | None = None, *, only_new: bool = False, **options: Unpack[TopicRest]
    ) -> Document:
        """Create *topic* (8 queues, MIXED), or give it what is named; TopicConflict when it has more queues, AlreadyExists."""
        named: TopicOptions = {"queues": queues, **options}
        return read_document(self._call(topic_request("PUT", topic, named, only_new=only_new)))

    def alter_topic(self, topic: str, **options: Unpack[TopicOptions]) -> Document:
        """Change what is named; TopicNotFound."""
        return read_document(self._call(topic_request("PATCH", topic, options)))

    def delete_topic(self, topic: str, *, missing_ok: bool = False) -> None:
        """Delete *topic* with its messages; TopicNotFound unless that is *missing_ok*.

        If the outcome of a first attempt was not known, the repeat may find that it is gone.
        """
        try:
            self._call(delete_request(paths.topic_path(check_topic(topic)), topic))
        except TopicNotFound:
            if not missing_ok:
                raise

    def topic(self, topic: str) -> Document:
        """Settings of *topic*, offsets of its queues, and the groups that read it."""
        return read_document(self._call(get_request(paths.topic_path(check_topic(topic)))))

    def topics(self, q: str = "", *, sort: str = "name") -> list[Document]:
        """All topics, or those with *q* in their names; *sort*: name, queues, type, with `-` in front turned round."""
        steps = all_rows(self._course, paths.TOPICS_PATH, "topics", {"q": q, "sort": sort}, now_ms())
        return self._drive(steps)

    def create_group(self, group: str, *, only_new: bool = False, **options: Unpack[GroupOptions]) -> Document:
        """Create *group*, or give it what is named."""
        return read_document(self._call(group_request("PUT", group, options, only_new=only_new)))

    def alter_group(self, group: str, **options: Unpack[GroupOptions]) -> Document:
        """Change what is named; GroupNotFound, GroupConflict."""
        return read_document(self._call(group_request("PATCH", group, options)))

    def delete_group(self, group: str, *, missing_ok: bool = False) -> None:
        """Delete *group* with its offsets, leases and dead letters; GroupNotFound unless that is *missing_ok*.

        If the outcome of a first attempt was not known, the repeat may find that it is gone.
        """
        try:
            self._call(delete_request(paths.group_path(check_group(group)), group))
        except GroupNotFound:
            if not missing_ok:
                raise

    def group(self, group: str, topic: str = "") -> Document:
        """Settings of *group*, and how far it is in each topic (or in *topic*)."""
        query = {"topic": check_topic(topic)} if topic else {}
        return read_document(self._call(get_request(paths.group_path(check_group(group)), **query)))

    def groups(self, q: str = "", *, sort: str = "name") -> list[Document]:
        """All consumer groups, or those with *q* in their names."""
        steps = all_rows(self._course, paths.GROUPS_PATH, "groups", {"q": q, "sort": sort}, now_ms())
        return self._drive(steps)
