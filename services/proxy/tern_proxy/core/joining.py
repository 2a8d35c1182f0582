"""Groups that a joining broker group lacks, page by page in order of their names, and the changes
that create them. Pure.

Every broker group answers with its next names behind the same name. So for the first names of all
answers together (up to the limit) it is known which broker groups have them. Existing groups stay
as they are; missing ones are created with the settings of the other broker groups.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from tern_proxy.core.transactions.producer_groups import newest, to_copy
from tern_wire.link.groups import KnownGroup
from tern_wire.link.producer_groups import KnownProducerGroup
from tern_wire.settings.producer_settings import ProducerChange
from tern_wire.settings.topic_settings import CREATE

# A broker group's description of one group.
Row = TypeVar("Row")
# Answer of each broker group: rows in order, and whether there are more.
Answers = Mapping[str, tuple[Sequence[Row], bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing(Generic[Row]):
    """Groups of the page that the broker group lacks, with the descriptions of the others in the
    order of their names.

    *after*: where the next page begins, "" after the last one.
    """

    groups: dict[str, list[tuple[str, Row]]]
    after: str


def missing_of(name: str, answers: Answers[Row], name_of: Callable[[Row], str], limit: int) -> Missing[Row]:
    """Return the groups in *answers* that the broker group *name* lacks.

    *name_of* returns the name of a row; each answer has at most *limit* rows.
    """
    rows: dict[str, list[tuple[str, Row]]] = {}
    for broker_group in sorted(answers):
        for row in answers[broker_group][0]:
            rows.setdefault(name_of(row), []).append((broker_group, row))
    known = sorted(rows)[:limit]
    has_more = len(rows) > limit or any(more for _, more in answers.values())
    lacking = {each: rows[each] for each in known if all(broker_group != name for broker_group, _ in rows[each])}
    return Missing(groups=lacking, after=known[-1] if known and has_more else "")


def group_to_create(told: Sequence[tuple[str, KnownGroup]]) -> dict[str, Any]:
    """Return the change that creates a consumer group as in the first broker group.

    It is refused if the group exists by then.
    """
    found = told[0][1]
    return {
        "mode": CREATE,
        "group": found.group,
        "invisible_ms": found.invisible_ms,
        "start": found.start,
        "start_ms": found.start_ms,
        "max_attempts": found.max_attempts,
        "retry": msgspec.to_builtins(found.retry),
        "fifo": found.fifo,
        "consume": found.consume,
        "broadcast": found.broadcast,
        "attributes": found.attributes,
    }


def producer_group_to_create(producer_group: str, told: Sequence[tuple[str, KnownProducerGroup]]) -> ProducerChange:
    """Return the change that creates a producer group with its newest settings, secret included.

    A producer group without explicit settings gets the defaults.
    """
    decided = newest(told)
    if decided is None or not decided.revision:
        return ProducerChange(producer_group=producer_group, create=True, settings={})
    return to_copy(producer_group, decided)
