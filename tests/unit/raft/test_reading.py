"""Reads of a node: answered by who leads now, refused by who does not, and never left waiting by either."""

from tests.fuzz.victim import StillRuntime, still_clocks
from tests.support.broker.lone_node import lone_node
from tests.support.files.faulty_files import FaultyFiles


def test_who_does_not_lead_refuses_to_be_read_at_once_and_who_leads_answers() -> None:
    """A deposed leader's state is of the past; a question that nobody answers would keep its client waiting."""
    runtime, answers = StillRuntime(), list[bool]()
    with still_clocks(runtime):
        node = lone_node(runtime, FaultyFiles(), [])
        node.when_current(answers.append)
        runtime.turn()
        assert answers == [False]
        node.begin()
        while not node.is_serving:
            runtime.turn(0.05)
        node.when_current(answers.append)
        runtime.turn()
        assert answers == [False, True]
        node._consensus.learn_term(node.term + 1)
        node.when_current(answers.append)
        runtime.turn()
        assert answers == [False, True, False]
