"""Places of topics: their creation in broker groups, and moves among them, with concurrent and
interrupted proxies.

Law: a topic is created with its placement (tern_wire/routing/placement.py), first in the first of
its broker groups, whose answer about it decides. A broker group that joins the mesh later gets only
the topics that are placed there. Every step may be repeated, by any proxy: an interrupted change is
completed by the next request for it.

Change of placement: new broker groups get the topic, with the old placement -> the first of the
present ones takes the next epoch -> all others do.

Its end: every previous owner releases -> the first of the present ones takes the next epoch -> all
others do.
"""

import asyncio
import contextlib
from collections.abc import Callable, Container, Sequence

import msgspec

from tern_proxy.core.sending.topic import Topic
from tern_proxy.core.topics import topic_route
from tern_proxy.proxy import Proxy
from tern_proxy.routes.broker_groups.late_groups import begin_topic
from tern_proxy.routes.fan_out import ask_all
from tern_wire.errors import InvalidField, NoLeader, PlacementMoving, TernError, TopicNotFound
from tern_wire.kept_topics import is_system
from tern_wire.limits import PLACEMENT_GROUPS_MAX
from tern_wire.link.topics import ChangeTopic, DescribeTopic, TopicChanged, TopicDescription, TopicState
from tern_wire.routing.placement import Placement, placement_of, read_placement
from tern_wire.settings.topic_settings import ALTER, CREATE, DECLARE, NOWHERE

# Name of a broker group, and its answer about a topic, described or changed.
Answers = Sequence[tuple[str, TopicState]]
Changed = list[tuple[str, TopicChanged]]


async def change_topic(proxy: Proxy, change: ChangeTopic, names: list[str]) -> Changed:
    """Apply *change* (tern_wire/settings/topic_settings.py) where the topic is, or in all of
    *names* if it is new.

    Return the answers in order. Raise the first error of a broker group; the changes of the others
    stay, and a repeat completes them.
    """
    topic, mode = change.topic, change.mode
    if mode == ALTER:
        answers = await ask_all(proxy, change, absent=TopicNotFound)
    else:
        known = proxy.cache.topics.get(topic)
        if known is not None:
            hosts = list(known.route)
            placement = placement_of({name: part.placement for name, part in known.route.items()})
        elif list(proxy.groups) == names[:1] and not is_system(topic):
            # The only broker group decides by itself, in one round.
            hosts, placement = [], NOWHERE
        else:
            found = await _look(proxy, topic)
            hosts, placement = [name for name, _ in found], placement_of(_texts(found))
        if hosts:
            # A broker group that has lost the topic gets it with its placement; others ignore that.
            answers = await _tell_all(proxy, hosts, change, placement=placement, is_repeatable=mode != CREATE)
            answers += await _complete(proxy, topic, answers)
        else:
            proxy.kept.require_new(topic)
            answers = await _create(proxy, change, names)
    _learn(proxy, topic, answers)
    return sorted(answers, key=lambda answer: answer[0])


async def _create(proxy: Proxy, change: ChangeTopic, names: list[str]) -> Changed:
    """Create in the first one first: it has the topic already, with a placement, or the placement
    is *names*.
    """
    first, mode = names[0], change.mode
    born = Placement(epoch=1, groups=tuple(names[:PLACEMENT_GROUPS_MAX]))
    asked = await _tell_all(proxy, [first], change, placement=born, is_repeatable=mode != CREATE)
    found = asked[0][1]
    placement = read_placement(found.placement)
    if not placement.epoch:
        # From a release without placements: the topic is wherever it exists.
        return await ask_all(proxy, msgspec.structs.replace(change, mode=ALTER), absent=TopicNotFound)
    others = [name for name in placement.groups if name != first]
    declared = msgspec.structs.replace(change, mode=DECLARE)
    answers = await asyncio.gather(*(_place(proxy, name, declared, placement) for name in others))
    return [(first, found), *zip(others, answers, strict=True)]


async def _complete(proxy: Proxy, topic: str, answers: Answers, hosts: Container[str] = ()) -> Changed:
    """Create the topic where its placement names a broker group without it, after an interrupted
    change.

    *hosts*: others that have it.
    """
    told, placement = dict(answers), placement_of(_texts(answers))
    lacking = [name for name in placement.groups if name not in told and name not in hosts]
    change = _declared(topic, answers[0][1])

    async def create(name: str) -> TopicChanged:
        created = await _place(proxy, name, change, placement)
        # Successful creations are recorded even if another one fails.
        _learn(proxy, topic, [(name, created)])
        return created

    found = await asyncio.gather(*(create(name) for name in lacking))
    return list(zip(lacking, found, strict=True))


async def create_topic_at_first_use(
    proxy: Proxy, topic: str, names: list[str], check_new: Callable[[str], None]
) -> None:
    """Create *topic* with the defaults, as `_create` does: in the first of *names*, whose error is
    raised, then in those of the others with a leader.

    Errors of the others are ignored: the topic exists, and its next use continues
    (`complete_topic`). The first one is the same for all proxies, with or without a leader: two
    concurrent creators would otherwise place the topic differently. A proxy whose routes lack that
    one may have created the topic in another one, which a query finds. *check_new* raises if the
    topic may not be created.
    """
    if found := await _look(proxy, topic):
        _learn(proxy, topic, found)
        if placement_of(_texts(found)).epoch:
            with contextlib.suppress(TernError):
                await _complete(proxy, topic, found)
            return
    check_new(topic)
    first, change = names[0], ChangeTopic(topic=topic, mode=DECLARE)
    up = [first, *(name for name in names[1:] if proxy.groups[name].link.has_leader)]
    created = await _place(proxy, first, change, Placement(epoch=1, groups=tuple(up[:PLACEMENT_GROUPS_MAX])))
    if not created.placement:
        await _place_where_it_is(proxy, topic)
        return
    _learn(proxy, topic, [(first, created)])
    with contextlib.suppress(TernError):
        await _complete(proxy, topic, [(first, created)])


async def complete_topic(proxy: Proxy, topic: Topic, *, may_create: bool) -> None:
    """Send the current placement to broker groups with an older one; with *may_create*, create the
    topic where it is missing.

    An earlier proxy may have been interrupted. Raise the first error; the changes of the others
    stay.
    """
    up = [name for name in topic.route if _has_leader(proxy, name)]
    asked = DescribeTopic(topic=topic.name)
    links = [proxy.groups[name].link for name in up]
    told = await asyncio.gather(*(link.ask(asked, is_repeatable=True) for link in links))
    answers = [(name, found) for name, (found, _) in zip(up, told, strict=True)]
    if not answers:
        return
    _learn(proxy, topic.name, answers)
    current = placement_of({**{name: part.placement for name, part in topic.route.items()}, **_texts(answers)})
    await _tell_late(proxy, topic.name, current, answers)
    if may_create:
        await _complete(proxy, topic.name, answers, topic.route)


async def _look(proxy: Proxy, topic: str) -> list[tuple[str, TopicDescription]]:
    """Return the descriptions of a topic that no route names, from the broker groups with a leader;
    errors are left out.
    """
    names = [name for name in sorted(proxy.groups) if _has_leader(proxy, name)]
    asked = DescribeTopic(topic=topic)
    links = [proxy.groups[name].link for name in names]
    found = await asyncio.gather(*(link.ask(asked, is_repeatable=True) for link in links), return_exceptions=True)
    for answer in found:
        if isinstance(answer, BaseException) and not isinstance(answer, TernError):
            raise answer
    return [
        (name, answer[0]) for name, answer in zip(names, found, strict=True) if not isinstance(answer, BaseException)
    ]


def wants_completion(proxy: Proxy, topic: Topic) -> bool:
    """Return whether a broker group with a leader lacks *topic* or its current placement."""
    return any(_has_leader(proxy, name) for name in topic.late)


def _has_leader(proxy: Proxy, name: str) -> bool:
    return name in proxy.groups and proxy.groups[name].link.has_leader


# Placement ----------------------------------------------------------------------------------------
async def describe_placement(proxy: Proxy, topic: str) -> tuple[Placement, list[tuple[str, TopicDescription]]]:
    """Return the current placement, and the descriptions of all broker groups that have the topic.

    Raise TopicNotFound.
    """
    answers = await ask_all(proxy, DescribeTopic(topic=topic), absent=TopicNotFound)
    return placement_of(_texts(answers)), answers


async def place_topic(proxy: Proxy, topic: str, wanted: tuple[str, ...]) -> tuple[bool, str]:
    """Place *topic* on the broker groups *wanted* (ascending, at least one).

    Return whether that is a change, and the obstacle to ending the move. Raise TopicNotFound,
    InvalidField for an unknown broker group, PlacementMoving while an earlier, different change has
    not ended.
    """
    unknown = [name for name in wanted if name not in proxy.groups]
    if unknown:
        reason = f"No broker group '{unknown[0]}' is known; there are {', '.join(sorted(proxy.groups))}"
        raise InvalidField(reason=reason, pointer="/broker_groups")
    current, described = await describe_placement(proxy, topic)
    answers: list[tuple[str, TopicState]] = [*described]
    if not current.epoch:
        current = await _place_where_it_is(proxy, topic)
    else:
        await _tell_late(proxy, topic, current, answers)
        answers += await _complete(proxy, topic, answers)
    if wanted == current.groups:
        if not current.is_moving:
            return False, ""
        try:
            await _end(proxy, topic, current, [name for name, _ in answers])
        except PlacementMoving as moving:
            return False, str(moving.fields["left"])
        return False, ""
    if current.is_moving:
        current = await _end(proxy, topic, current, [name for name, _ in answers])
    await _move(proxy, topic, current, current.next(wanted), answers)
    return True, ""


async def _move(proxy: Proxy, topic: str, current: Placement, wanted: Placement, answers: Answers) -> None:
    hosts = [name for name, _ in answers]
    lacking = [name for name in wanted.groups if name not in hosts]
    new = _declared(topic, answers[0][1])
    # With the old placement: a proxy that sees only one of them must not treat it as an owner yet.
    created = [(name, await _place(proxy, name, new, current)) for name in lacking]
    for name, found in created:
        await begin_topic(proxy, topic, name, found.queues)
    # Only now may this proxy send there: groups that read the topic from its end have begun.
    _learn(proxy, topic, created)
    await _tell_placement(proxy, topic, wanted, first=current.groups[0], others=[*hosts, *lacking])


async def _end(proxy: Proxy, topic: str, current: Placement, hosts: list[str]) -> Placement:
    """End the move; return the new placement. Raise PlacementMoving when it cannot end yet."""
    change = ChangeTopic(topic=topic, mode=ALTER, ending=True)
    for name in current.before:
        await _place(proxy, name, change, current)
    ended = current.ended()
    await _tell_placement(proxy, topic, ended, first=current.groups[0], others=hosts)
    return ended


async def _tell_placement(proxy: Proxy, topic: str, wanted: Placement, *, first: str, others: list[str]) -> None:
    """Let *first* decide between concurrent changes, and the others follow.

    Raise PlacementMoving if another change won.
    """
    change = ChangeTopic(topic=topic, mode=ALTER)
    decided = await _place(proxy, first, change, wanted)
    if decided.placement != str(wanted):
        raise PlacementMoving(topic=topic, epoch=wanted.epoch, left="a concurrent change is complete")
    _learn(proxy, topic, [(first, decided)])
    rest = [name for name in others if name != first]
    followed = await asyncio.gather(*(_place(proxy, name, change, wanted) for name in rest))
    _learn(proxy, topic, list(zip(rest, followed, strict=True)))


async def _tell_late(proxy: Proxy, topic: str, current: Placement, answers: Answers) -> None:
    """Send the current placement to broker groups with an older one."""
    behind = [name for name, found in answers if read_placement(found.placement).epoch < current.epoch]
    change = ChangeTopic(topic=topic, mode=ALTER)
    told = await asyncio.gather(*(_place(proxy, name, change, current) for name in behind))
    _learn(proxy, topic, list(zip(behind, told, strict=True)))


async def _place_where_it_is(proxy: Proxy, topic: str) -> Placement:
    """Place a topic without a placement on all broker groups that have it.

    Raise the error of one that may have it.
    """
    current, answers = await describe_placement(proxy, topic)
    if current.epoch:
        return current
    born = Placement(epoch=1, groups=current.groups[:PLACEMENT_GROUPS_MAX])
    await _tell_placement(proxy, topic, born, first=born.groups[0], others=[name for name, _ in answers])
    return born


# Requests -----------------------------------------------------------------------------------------
async def _place(proxy: Proxy, name: str, change: ChangeTopic, placement: Placement) -> TopicChanged:
    return (await _tell_all(proxy, [name], change, placement=placement))[0][1]


def _placed(change: ChangeTopic, placement: Placement, own: str) -> ChangeTopic:
    """Return *change* for the broker group *own*, with the topic's placement."""
    return msgspec.structs.replace(change, placement=str(placement), own=own)


def _declared(topic: str, found: TopicState) -> ChangeTopic:
    """Return the change that creates the topic in another broker group with the settings in
    *found*.
    """
    return ChangeTopic(
        topic=topic,
        mode=DECLARE,
        queues=found.queues,
        type=found.type,
        perm=found.perm,
        attributes=dict(found.attributes),
    )


async def _tell_all(
    proxy: Proxy,
    names: list[str],
    change: ChangeTopic,
    *,
    placement: Placement = NOWHERE,
    is_repeatable: bool = True,
) -> Changed:
    """Return name and answer of each of *names*, in order.

    Raise NoLeader for one that no route names.
    """
    missing = [name for name in names if name not in proxy.groups]
    if missing:
        raise NoLeader(broker_group=missing[0])
    changes = [_placed(change, placement, name) if placement.epoch else change for name in names]
    asked = (
        proxy.groups[name].link.ask(each, is_repeatable=is_repeatable)
        for name, each in zip(names, changes, strict=True)
    )
    told = await asyncio.gather(*asked)
    return [(name, found) for name, (found, _) in zip(names, told, strict=True)]


def _texts(answers: Answers) -> dict[str, str]:
    """Return the placements; empty from a release without placements."""
    return {name: found.placement for name, found in answers}


def _learn(proxy: Proxy, topic: str, answers: Answers) -> None:
    for name, found in answers:
        proxy.cache.insert(topic, name, topic_route(found))
