"""Names of topics by their ids in broker groups: verdicts of the log carry ids, answers carry
names.

Owner of the table: the event loop. The table is rebuilt when the routes cache has changed and an id
is not found.
"""

from tern_proxy.brokers.routes_cache import RoutesCache


class TopicNames:
    """Names of the topics in *cache*, by broker group and id."""

    def __init__(self, cache: RoutesCache) -> None:
        self._cache = cache
        self._names: dict[tuple[str, int], str] = {}
        # The routes, and the number of topics, from which the table was built.
        self._made_of: tuple[object, int] = (None, 0)

    def find(self, broker_group: str, topic_id: int) -> str:
        """Return the name; "" while no route has it."""
        name = self._names.get((broker_group, topic_id), "")
        topic = self._cache.topics.get(name)
        route = topic.route.get(broker_group) if topic is not None else None
        if route is not None and route.topic_id == topic_id:
            return name
        routes, count = self._cache.routes, len(self._cache.topics)
        if self._made_of[0] is routes and self._made_of[1] == count:
            self._cache.refresh_soon()
            return ""
        self._made_of = (routes, count)
        self._names = {
            (group, part.topic_id): name
            for name, topic in self._cache.topics.items()
            for group, part in topic.route.items()
        }
        return self._names.get((broker_group, topic_id), "")
