"""How a bug is planted: an attribute of the product is another one for a while. The product knows nothing of it.

Law: a bug changes one thing; it is taken out again whatever happens; planting it twice is planting it once.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.sim.swarm import Swarm


@dataclass(frozen=True, slots=True)
class PlantedBug:
    """*breaks*: what is wrong with it in, one sentence; *convicts*: who sees what harm it does, by the checkers' names (ghosts see it before)."""

    name: str
    breaks: str
    convicts: tuple[str, ...]
    plant: Callable[[], AbstractContextManager[None]]
    # What a seed of its trial is, if not what `choose` says: of a bug that needs faults which few seeds have.
    swarm: "Callable[[int], Swarm] | None" = None


@contextmanager
def changed(*changes: tuple[object, str, Any]) -> Iterator[None]:
    """Each (owner, attribute, value) is so inside; outside it is as before, also if it was inherited."""
    missing = object()
    for owner, name, _ in changes:
        assert hasattr(owner, name), f"{owner} has no {name} (any more): the bug must be planted elsewhere"
    before = [(owner, name, vars(owner).get(name, missing)) for owner, name, _ in changes]
    try:
        for owner, name, value in changes:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in before:
            if value is missing:
                delattr(owner, name)
            else:
                setattr(owner, name, value)


@contextmanager
def quiet() -> Iterator[None]:
    """Nothing is logged: simulated nodes die by the dozen."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
