"""Isolated completion of waiters: a bug in one completion affects that waiter only.

Loops over waiters, callbacks or futures complete each one through this module. A bug is logged with
its traceback, and its waiter is refused with `internal`, which names the place of the bug and
nothing of the request.
"""

import logging
from collections.abc import Callable
from pathlib import PurePath
from traceback import walk_tb

from tern_wire.errors import TernError

log = logging.getLogger(__name__)


def tell(
    answer: Callable[[], object], refuse: Callable[[TernError], object], *, ends: tuple[type[Exception], ...] = ()
) -> None:
    """Call *answer*; if that raises, call *refuse* with the problem.
    Exceptions in *ends* pass through: the process must not continue.
    """
    try:
        answer()
    except ends:
        raise
    except Exception as error:
        problem = problem_of(error)
        try:
            refuse(problem)
        except ends:
            raise
        except Exception:
            # The refusal failed too; the other waiters must not be affected.
            log.exception("a waiting request could not be refused")


def problem_of(error: Exception) -> TernError:
    """The answer for *error*: *error* itself if it is a TernError, else `internal`; a bug is
    logged.
    """
    if isinstance(error, TernError):
        return error
    log.error("a bug: one request could not be answered", exc_info=error)
    return TernError(bug=_place_of(error))


def _place_of(error: Exception) -> str:
    """The exception's type and its file and line; its text could hold parts of the request."""
    places = [f"{PurePath(frame.f_code.co_filename).name}:{line}" for frame, line in walk_tb(error.__traceback__)]
    return f"{type(error).__name__} at {places[-1]}" if places else type(error).__name__
