"""Names of topics by the ids that broker groups give them: verdicts of the log carry ids, people read names.

Owner of the table: the event loop. It follows the routes cache and is made anew when that has changed and an id is not found.
"""

from tern_proxy.brokers.routes_cache import RoutesCache


class TopicNames:
    """The names of the topics in *cache*, by broker group and id."""

    def __init__(self, cache: RoutesCache) -> None:
        self._cache = cache
        self._names: dict[tuple[str, int], str] = {}
        # The routes, and how many topics, that the table was made of.
        self._made_of: tuple[object, int] = (None, 0)

    def find(self, broker_group: str, topic_id: int) -> str:
        """The name; "" when no route names it (yet, or any more)."""
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
