"""Publications: a batch is visible in part, twice, out of its order, or though nobody published it; or what was promised of it is not so.

Exactly, of each query: a batch that a publication was acknowledged for (its own, or a later one) is in the queues of every node, all of its
messages once, as long as nothing was dropped there; one that no publication of it or of a later batch may have reached is not there at all;
one that is there is there whole. In a queue its messages lie in the order of partitions, chunks and rows, and batches in theirs. The batch
that publications answer never falls, and is at least the one that was asked for; behind such an answer nothing is staged for that batch.
"""

from collections import defaultdict
from collections.abc import Iterator

from tests.sim.clients.plan import PUBLISHED_TOPIC, QUEUES
from tests.sim.clients.writers import CHUNKS, PARTITIONS, rows_of
from tests.sim.history.history import LATER, EndState, History, NodeEnd, Operation, Violation
from tests.sim.history.publication_values import BatchPublished, PublishBatch, StageChunk

# A batch of a query.
_Batch = tuple[str, int]


def check(history: History, end: EndState) -> list[Violation]:
    """Every violation; O(operations + messages * nodes)."""
    asked: dict[str, list[Operation]] = defaultdict(list)
    staged: list[Operation] = []
    for operation in history.operations:
        if isinstance(operation.asked, PublishBatch):
            asked[operation.asked.query].append(operation)
        elif isinstance(operation.asked, StageChunk):
            staged.append(operation)
    found = [*_answers(asked, staged)]
    for node in end.nodes:
        found += _visible(node, asked)
    return [Violation("publications", text) for text in found]


def _answers(asked: dict[str, list[Operation]], staged: list[Operation]) -> Iterator[str]:
    """What is wrong with the answers, whatever nodes hold."""
    # Query -> (ended, batch) of acknowledged publications, the highest batch so far.
    floors: dict[str, list[tuple[int, int]]] = {}
    for query, operations in asked.items():
        highest = -1
        floor: list[tuple[int, int]] = []
        for operation in sorted((each for each in operations if each.is_ok), key=lambda each: each.ended):
            told, request = operation.answer, operation.asked
            assert isinstance(told, BatchPublished) and isinstance(request, PublishBatch)
            before = max((batch for ended, batch in floor if ended < operation.began), default=-1)
            if told.batch < max(request.batch, before):
                yield f"{operation} answers batch {told.batch}, after {before} was published"
            if told.batch == request.batch and not told.is_replay and told.rows != sum(r for *_, r in request.stages):
                yield f"{operation} publishes {told.rows} rows"
            highest = max(highest, told.batch)
            floor.append((operation.ended, highest))
        floors[query] = floor
    for operation in staged:
        chunk = operation.asked
        assert isinstance(chunk, StageChunk)
        before = max((batch for ended, batch in floors.get(chunk.query, ()) if ended < operation.began), default=-1)
        if operation.is_ok and chunk.batch <= before:
            yield f"staged for a batch that was published: {operation}"


def _visible(node: NodeEnd, asked: dict[str, list[Operation]]) -> Iterator[str]:
    """What is wrong with the messages that *node* holds."""
    places: dict[_Batch, dict[str, tuple[int, int]]] = defaultdict(dict)
    is_whole = True
    for queue in range(QUEUES[PUBLISHED_TOPIC]):
        held = node.queues.get((PUBLISHED_TOPIC, queue))
        if held is None:
            continue
        is_whole = is_whole and held.min_offset == 0
        for stored in held.messages:
            query, _, rest = stored.body_name.partition("-b")
            batch = places[query, int(rest.partition(".")[0])] if rest else {}
            if stored.body_name in batch:
                yield f"{node.node} has {stored.body_name} twice, at {batch[stored.body_name]} and {queue}:{stored.offset}"
            batch[stored.body_name] = queue, stored.offset
    acknowledged, possible = _published(asked)
    for query, last in acknowledged.items():
        for number in range(last + 1) if is_whole else ():
            if missing := set(_names(query, number)) - set(places.get((query, number), ())):
                yield f"{node.node} lacks {sorted(missing)[:3]} of batch {number}, and {last} is published"
    for (query, number), names in places.items():
        if number > possible.get(query, -1):
            yield f"{node.node} has {sorted(names)[:3]}, and nobody has published batch {number}"
        if is_whole and len(names) < len(_names(query, number)):
            yield f"{node.node} has batch {number} of {query} in part: {sorted(names)}"
    yield from _order(node, places)


def _order(node: NodeEnd, places: dict[_Batch, dict[str, tuple[int, int]]]) -> Iterator[str]:
    last: dict[tuple[str, int], tuple[int, str]] = {}
    for query, number in sorted(places):
        names = places[query, number]
        for name in _names(query, number):
            if name in names:
                queue, offset = names[name]
                before = last.get((query, queue), (-1, ""))
                if offset <= before[0]:
                    yield f"{node.node} has {name} at {queue}:{offset}, before {before[1]}"
                last[query, queue] = offset, name


def _published(asked: dict[str, list[Operation]]) -> tuple[dict[str, int], dict[str, int]]:
    """Of each query, the last batch that is certainly, and that is possibly published."""
    certain: dict[str, int] = {}
    possible: dict[str, int] = {}
    for query, operations in asked.items():
        for operation in operations:
            request, told = operation.asked, operation.answer
            assert isinstance(request, PublishBatch)
            if isinstance(told, BatchPublished):
                certain[query] = max(certain.get(query, -1), told.batch)
            if operation.may_have_happened or operation.over == LATER:
                possible[query] = max(possible.get(query, -1), request.batch)
    return certain, possible


def _names(query: str, batch: int) -> list[str]:
    """The messages of a batch, in their order."""
    return [
        message.name
        for partition in range(PARTITIONS)
        for chunk in range(CHUNKS)
        for message in rows_of(query, batch, partition, chunk)
    ]
