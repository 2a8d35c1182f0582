"""Answers to those who wait, one by one: what a bug does to one answer costs that one, and nobody who waits beside it.

Whoever loops over waiters, callbacks or futures tells each of them through here. A bug is logged with its traceback, and the one whom it
hit is refused with `internal`, which names the place of the bug and nothing of what was asked.
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
    """Call *answer*; if that raises, call *refuse* with the problem. What is one of *ends* passes through: the process must not go on."""
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
            # There is no way left to tell it; the others are not to notice.
            log.exception("somebody who waits could not be refused")


def problem_of(error: Exception) -> TernError:
    """What to answer for *error*: itself if it is meant as an answer, else `internal` with the bug's place; a bug is logged."""
    if isinstance(error, TernError):
        return error
    log.error("a bug: one request could not be answered", exc_info=error)
    return TernError(bug=_place_of(error))


def _place_of(error: Exception) -> str:
    """The exception's type, and the file and line that raised it; its text may hold what was asked."""
    places = [f"{PurePath(frame.f_code.co_filename).name}:{line}" for frame, line in walk_tb(error.__traceback__)]
    return f"{type(error).__name__} at {places[-1]}" if places else type(error).__name__
