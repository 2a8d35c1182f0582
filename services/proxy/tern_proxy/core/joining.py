"""What a broker group that joins a mesh lacks: groups that others have, page by page in order of their names, and the changes that make them. Pure.

Every broker group tells its next names behind the same one, so the first so many of all of them together are known of each: who has a group, and
who has not. What is there stays as it is; what is not is made with the settings that the others have.
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

# What a broker group says of one group.
Row = TypeVar("Row")
# By broker group, its answer: rows in order, and whether there are more.
Answers = Mapping[str, tuple[Sequence[Row], bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing(Generic[Row]):
    """What *name* of the page lacks: what each other broker group says of it, in the order of their names. *after*: where the next page begins,
    "" when this was the last."""

    groups: dict[str, list[tuple[str, Row]]]
    after: str


def missing_of(name: str, answers: Answers[Row], name_of: Callable[[Row], str], limit: int) -> Missing[Row]:
    """What broker group *name* lacks of what the *answers* have, whose rows are named by *name_of*; each was asked for *limit*."""
    rows: dict[str, list[tuple[str, Row]]] = {}
    for broker_group in sorted(answers):
        for row in answers[broker_group][0]:
            rows.setdefault(name_of(row), []).append((broker_group, row))
    known = sorted(rows)[:limit]
    has_more = len(rows) > limit or any(more for _, more in answers.values())
    lacking = {each: rows[each] for each in known if all(broker_group != name for broker_group, _ in rows[each])}
    return Missing(groups=lacking, after=known[-1] if known and has_more else "")


def group_to_create(told: Sequence[tuple[str, KnownGroup]]) -> dict[str, Any]:
    """The change that makes a consumer group as the first broker group has it: refused where one of that name is there by then."""
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
    """The change that makes a producer group as it was decided last, its secret included. One that nobody has decided anything of has defaults."""
    decided = newest(told)
    if decided is None or not decided.revision:
        return ProducerChange(producer_group=producer_group, create=True, settings={})
    return to_copy(producer_group, decided)
