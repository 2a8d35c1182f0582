"""Documents that explain errors: the meaning and remedy of each code, and the routes with it."""

from typing import Annotated, Any

from msgspec import Meta, Struct


class ProblemKind(Struct, kw_only=True):
    """One error of the API."""

    code: Annotated[str, Meta(description="Stable; for use by programs.")]
    status: int
    title: str
    retryable: Annotated[bool, Meta(description="Whether the same request can succeed later.")]


class ProblemExplained(ProblemKind, kw_only=True):
    """One error with its remedy."""

    remedy: Annotated[str, Meta(description="The text of `detail`, with the names of its fields in braces.")]
    fields: Annotated[list[str], Meta(description="Fields of its problem document.")]
    routes: Annotated[list[str], Meta(description="Routes with this error, other than the errors of every route.")]
    everywhere: Annotated[bool, Meta(description="Whether every route may answer it.")]
    example: Annotated[dict[str, Any], Meta(description="A complete problem document.")]


class ProblemKinds(Struct, kw_only=True):
    """All errors of the API, by status and code."""

    problems: list[ProblemKind]
