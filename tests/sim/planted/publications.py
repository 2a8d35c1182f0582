"""Planted bugs of batches that become visible at once."""

from typing import Any

from tern_broker.core.publications.publications import Publications
from tern_broker.core.publications.publishing import Publisher
from tern_broker.core.publications.stages import Query, Stage
from tern_wire.link.publications import NO_BATCH
from tests.sim.planted.planting import PlantedBug, changed


def _forgotten_history() -> Any:
    """What a query has published last is forgotten with every other batch."""

    def publication(self: Publications, *arguments: Any) -> Any:
        verdict = original(self, *arguments)
        for query in self.queries.values():
            if query.batch % 2:
                query.batch = NO_BATCH
        return verdict

    original = Publications._publication
    return changed((Publications, "_publication", publication))


def _every_attempt() -> Any:
    """All attempts at a partition are published, not only the one that was announced."""

    def named(self: Publications, query: Query, batch: int, stages: list[list[int]]) -> list[Stage]:
        original(self, query, batch, stages)
        return [stage for stage in query.stages.values() if stage.batch == batch]

    original = Publications._named
    return changed((Publications, "_named", named))


def _half_batch() -> Any:
    """Of every batch the first half is visible."""
    original = Publisher.publish

    def publish(self: Publisher, messages: Any, applied: Any) -> Any:
        return original(self, messages[: (len(messages) + 1) // 2], applied)

    return changed((Publisher, "publish", publish))


def _stale_positions() -> Any:
    """Staged messages that retention has copied are looked for where they were."""
    return changed((Publications, "moved", lambda *_: None))


def _shown_late() -> Any:
    """The last partition of a batch is shown first."""
    original = Publisher.publish

    def publish(self: Publisher, messages: Any, applied: Any) -> Any:
        return original(self, messages[::-1], applied)

    return changed((Publisher, "publish", publish))


PUBLICATIONS = (
    PlantedBug("forgotten_history", "a batch is published again", ("publications", "unexpected"), _forgotten_history),
    PlantedBug("every_attempt", "a batch is there twice", ("publications", "unexpected"), _every_attempt),
    PlantedBug("half_batch", "a batch is visible in part", ("publications",), _half_batch),
    PlantedBug("shown_late", "rows of a batch lie in another order", ("publications",), _shown_late),
    PlantedBug("stale_positions", "staged records are lost", ("lost", "unhandled", "stuck"), _stale_positions),
)
