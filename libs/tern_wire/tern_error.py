"""Base class of all errors: a code, a status, whether a repeat can help, a title, and a sentence
with the fix.

See errors.py. Reference: RFC 9457.
"""

from typing import Any, ClassVar


class TernError(Exception):
    """Base of all errors. Subclasses set `code`, `status`, `retryable`, `title` and a `fix` that is
    formatted with the fields.
    """

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False
    title: ClassVar[str] = "Something in TernMQ is broken"
    fix: ClassVar[str] = "Report this with the request id; nothing that was acknowledged is affected."

    def __init__(self, **fields: Any) -> None:
        self.fields = fields
        self.detail = self.fix.format_map(_Lenient(fields))
        super().__init__(self.detail)

    def problem(self, instance: str = "", request_id: str = "") -> dict[str, Any]:
        """Return this error as a problem document (RFC 9457) with our extension members."""
        document: dict[str, Any] = {
            "type": f"/problems/{self.code}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            "retryable": self.retryable,
        }
        if instance:
            document["instance"] = instance
        if request_id:
            document["request_id"] = request_id
        return {**self.fields, **document}


class _Lenient(dict[str, Any]):
    """Format fields in which a missing field prints as its name, so that formatting an error never
    fails.
    """

    def __missing__(self, key: str) -> str:
        return "{" + key + "}"
