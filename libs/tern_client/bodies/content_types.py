"""Content types of bodies, as far as they decide how a body is read."""

JSON = "application/json"
TEXT = "text/plain"
CLOUD_EVENT = "application/cloudevents+json"


def media_type(content_type: str) -> str:
    """Return the type without parameters, in lower case."""
    return content_type.partition(";")[0].strip().lower()


def is_json(content_type: str) -> bool:
    """Whether a body of this type is JSON: `application/json`, or any type with `+json`."""
    kind = media_type(content_type)
    return kind == JSON or kind.endswith("+json")


def is_text(content_type: str) -> bool:
    """Whether a body of this type is text."""
    return media_type(content_type).startswith("text/")
