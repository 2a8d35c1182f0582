"""Confirmation of a deletion: the query repeats the name of what is deleted."""

from tern_proxy.routes.call import Call
from tern_proxy.routes.route import Schema, in_query
from tern_wire.errors import ConfirmationNeeded
from tern_wire.names import own_name


def confirm_with(what: str) -> Schema:
    """Return the parameter `confirm` of a deletion."""
    return in_query("confirm", {"type": "string"}, f"The {what}'s name again.", required=True)


def confirm(call: Call, what: str, name: str, loss: str) -> None:
    """Raise ConfirmationNeeded unless the query repeats the name of the object to be deleted."""
    # In the client's form: the name without its namespace.
    if call.query.get("confirm") != own_name(name):
        raise ConfirmationNeeded(what=what, name=name, loss=loss)
