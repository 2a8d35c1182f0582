"""Rows of the API's reference pages."""

from tern_proxy.core.documents.problems import ProblemKinds
from tern_proxy.routes.call import HTML
from tern_proxy.routes.failures import ASKED
from tern_proxy.routes.reference.pages import get_docs, get_docs_asset
from tern_proxy.routes.reference.problems import explained, get_problem, list_problems, problem_kind
from tern_proxy.routes.route import Gives, Route, gives
from tern_wire.errors import ProblemNotFound, RouteNotFound, TopicNotFound
from tern_wire.paths import DOCS_PATH, PROBLEMS_PATH, problem_path

_EXPLAINED = gives(explained(TopicNotFound, ()), "Its meaning and remedy.")

ROUTES = (
    Route(
        "GET",
        PROBLEMS_PATH,
        list_problems,
        id="listProblems",
        tag="reference",
        summary="List errors",
        gives={200: gives(ProblemKinds(problems=[problem_kind(TopicNotFound)]), "All of them.")},
        errors=ASKED,
    ),
    Route(
        "GET",
        problem_path("{problem}"),
        get_problem,
        id="getProblem",
        tag="reference",
        summary="Explain an error",
        gives={
            200: Gives(
                text=_EXPLAINED.text,
                content={**_EXPLAINED.content, HTML: {"schema": {"type": "string"}}},
                kinds=_EXPLAINED.kinds,
            )
        },
        errors=(*ASKED, ProblemNotFound),
    ),
    Route(
        "GET",
        DOCS_PATH,
        get_docs,
        id="getDocs",
        tag="reference",
        summary="Read and try this API",
        gives={
            200: Gives(
                text="For a browser.",
                content={HTML: {"schema": {"type": "string"}}},
                headers=("Content-Security-Policy",),
            )
        },
        errors=ASKED,
    ),
    Route(
        "GET", "/docs/{asset}", get_docs_asset, id="", tag="reference", summary="", gives={}, errors=(RouteNotFound,)
    ),
)
