"""Documents that explain errors: the meaning and remedy of each code, and the routes with it."""

from typing import Annotated, Any

from msgspec import Meta, Struct


class ProblemKind(Struct, kw_only=True):
    """One error of the API."""

    code: Annotated[str, Meta(description="Stable; decide by this.")]
    status: int
    title: str
    retryable: Annotated[bool, Meta(description="Whether the same request can succeed later.")]


class ProblemExplained(ProblemKind, kw_only=True):
    """One error with its remedy."""

    remedy: Annotated[str, Meta(description="What `detail` says, with the names of its fields in braces.")]
    fields: Annotated[list[str], Meta(description="Fields that come with it.")]
    routes: Annotated[list[str], Meta(description="Routes that answer it, beside what any route may.")]
    everywhere: Annotated[bool, Meta(description="Whether any route may answer it.")]
    example: Annotated[dict[str, Any], Meta(description="A whole problem.")]


class ProblemKinds(Struct, kw_only=True):
    """All errors of the API, by status and code."""

    problems: list[ProblemKind]
