"""The checker's own route: its status, for people. Health and metrics are tern_service's."""

from tern_service.plain_app import Route, json_answer
from tern_txn_checker.checker import Checker
from tern_wire.paths import CHECKER_PATH


def checker_routes(checker: Checker) -> dict[str, Route]:
    """GET /v1/checker: held checks, calls under way, results so far, and the state of its hosts."""
    return {CHECKER_PATH: lambda _: json_answer(200, checker.status())}
