"""The state machine from a saved state. An unreadable or inconsistent saved state is not used; the
state is rebuilt from the log.
"""

import logging

from tern_broker.core import saving
from tern_broker.core.machine import StateMachine

log = logging.getLogger(__name__)


class SavedStates:
    """Of one start of a node. Keeps the last loaded state, so that nothing is loaded twice."""

    def __init__(self) -> None:
        self._loaded: tuple[bytes, StateMachine] | None = None

    def knows(self, payload: bytes) -> bool:
        """Return whether this release reads the format of *payload*."""
        return saving.is_known(payload)

    def accepts(self, payload: bytes) -> bool:
        """Return whether this release reads *payload*, and the result equals the saved state."""
        if not saving.is_known(payload):
            return False
        try:
            self._loaded = payload, saving.load(payload)
        except ValueError as error:
            log.critical("a saved state is not used", extra={"reason": str(error)})
            return False
        return True

    def state(self, payload: bytes) -> StateMachine:
        """Return the state of *payload*, which was accepted. Call it once; ValueError as from
        `saving.load`.
        """
        loaded, self._loaded = self._loaded, None
        return loaded[1] if loaded is not None and loaded[0] == payload else saving.load(payload)
