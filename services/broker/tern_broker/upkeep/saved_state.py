"""The state machine out of a saved state: what cannot be read, or is not what was saved, is not used; the log makes it anew."""

import logging

from tern_broker.core import saving
from tern_broker.core.machine import StateMachine

log = logging.getLogger(__name__)


class SavedStates:
    """Of one start of a node. Keeps what it has loaded last, so that nothing is loaded twice."""

    def __init__(self) -> None:
        self._loaded: tuple[bytes, StateMachine] | None = None

    def knows(self, payload: bytes) -> bool:
        """Whether this release reads the form of *payload*."""
        return saving.is_known(payload)

    def accepts(self, payload: bytes) -> bool:
        """Whether this release reads *payload*, and what it reads is what was saved."""
        if not saving.is_known(payload):
            return False
        try:
            self._loaded = payload, saving.load(payload)
        except ValueError as error:
            log.critical("a saved state is not used", extra={"reason": str(error)})
            return False
        return True

    def state(self, payload: bytes) -> StateMachine:
        """That of *payload*, which was accepted. Called once; ValueError as `saving.load`."""
        loaded, self._loaded = self._loaded, None
        return loaded[1] if loaded is not None and loaded[0] == payload else saving.load(payload)
