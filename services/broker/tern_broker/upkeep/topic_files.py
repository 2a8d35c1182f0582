"""The files of deleted topics: their queues leave the store when the deletion is applied, and the
disk when no saved state needs them.
"""

from collections.abc import Mapping

from tern_store import Store


def drop_topics(store: Store, dropped: Mapping[int, int]) -> None:
    """Remove the queues of *dropped*, topic id to number of queues. Ids are never reused, so their
    files never return.

    Records stay in the log until retention drops their segments: records of other topics lie
    between them.
    """
    for topic_id, queues in dropped.items():
        for queue in range(queues):
            store.queues.remove(topic_id, queue)
            store.references.pop((topic_id, queue), None)
