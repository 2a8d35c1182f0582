"""Answers to those who wait, one by one: a bug costs the one whom it hits, who hears where it is; what ends the process passes through."""

import logging
from collections.abc import Callable

import pytest

from tern_remoting import problem_of, tell
from tern_wire.errors import NotLeader, TernError

SECRET = "the body of somebody's message"


def raising(error: Exception) -> Callable[[], None]:
    """A callback with a bug, or an answer that is an error."""

    def answer() -> None:
        raise error

    return answer


def test_a_bug_is_refused_with_its_place_and_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """Never with its text, which may hold what was asked."""
    refused: list[TernError] = []
    with caplog.at_level(logging.ERROR):
        tell(raising(IndexError(SECRET)), refused.append)
    (problem,) = refused
    assert (problem.code, problem.status) == ("internal", 500)
    assert problem.fields["bug"].startswith("IndexError at test_completion.py:")
    assert SECRET not in str(problem.problem())
    (record,) = caplog.records
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], IndexError)


def test_an_error_that_is_an_answer_is_told_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    """It is no bug, and not logged as one."""
    refused: list[TernError] = []
    error = NotLeader(node="a", leader="", broker_group="g")
    tell(raising(error), refused.append)
    assert refused == [error]
    assert not caplog.records


def test_who_cannot_be_refused_costs_the_others_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Both are logged."""
    tell(raising(IndexError()), lambda _: raising(KeyError())())
    assert len(caplog.records) == 2


@pytest.mark.parametrize("refuses", [False, True])
def test_what_ends_the_process_passes_through(refuses: bool) -> None:
    """Also when it is met while somebody is refused."""
    with pytest.raises(ZeroDivisionError):
        tell(
            raising(IndexError() if refuses else ZeroDivisionError()),
            lambda _: raising(ZeroDivisionError())(),
            ends=(ZeroDivisionError,),
        )


def test_an_exception_that_was_never_raised_has_no_place() -> None:
    """It is named all the same."""
    assert problem_of(IndexError()).fields == {"bug": "IndexError"}
