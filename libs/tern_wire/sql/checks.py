"""Checks of SQL filters beyond the grammar: expressions that no message could ever match are
refused with their position.

Law: a filter that passes can be evaluated for any message without an error.
"""

from tern_wire.sql.conditions import Condition, Literal, Operand, Property
from tern_wire.sql.lexer import END, NAME, NUMBER, TEXT, Token, refuse, shown


def named(token: Token) -> str:
    """Return the text of a token for an error."""
    if token.kind == END:
        return "the end of the filter"
    if token.kind in {NAME, TEXT, NUMBER}:
        return f"the {token.kind} {shown(str(token.value))}"
    return f"'{token.kind}'"


def as_condition(found: Condition | Operand, at: int) -> Condition:
    """Return *found*, which begins at *at*, if it is a condition; raise IllegalFilter otherwise."""
    if isinstance(found, Property):
        refuse(at, f"{shown(found.name)} alone is no condition; compare it, such as with = TRUE")
    if isinstance(found, Literal) and not is_truth(found):
        refuse(at, f"{shown(str(found))} alone is no condition; compare a property with it")
    return found


def as_operand(found: Condition | Operand, token: Token) -> Operand:
    """Return *found*, which begins with *token*, if it is an operand; raise IllegalFilter
    otherwise.
    """
    if not isinstance(found, Property | Literal):
        refuse(token.at, "a condition cannot be compared; compare a property or a literal")
    return found


def as_property(found: Condition | Operand, token: Token) -> Property:
    """Return *found*, which begins with *token*, if it is a property; raise IllegalFilter
    otherwise.
    """
    if not isinstance(found, Property):
        refuse(token.at, "a property's name was expected on the left")
    return found


def is_truth(operand: Operand) -> bool:
    """Return whether the operand is TRUE or FALSE, which are conditions, too."""
    return isinstance(operand, Literal) and isinstance(operand.value, bool)


def kind_of(literal: Literal) -> str:
    """Return `text`, `number` or `truth value`."""
    return {bool: "truth value", str: "text"}.get(type(literal.value), "number")


def must_have_order(operand: Operand, token: Token) -> None:
    """Raise IllegalFilter at *token* for a literal that is not a number.

    Only numbers, and properties as numbers, have an order.
    """
    if isinstance(operand, Literal) and kind_of(operand) != "number":
        refuse(token.at, f"a {kind_of(operand)} has no order; only numbers are larger or smaller")


def must_be_comparable(sign: Token, left: Operand, right: Operand) -> None:
    """Raise IllegalFilter at *sign* for two literals of different kinds."""
    if isinstance(left, Literal) and isinstance(right, Literal) and kind_of(left) != kind_of(right):
        refuse(sign.at, f"a {kind_of(left)} is never equal to a {kind_of(right)}; compare a property")


def must_ascend(low: Operand, high: Operand, token: Token) -> None:
    """Raise IllegalFilter at *token*, the lower bound, for bounds of BETWEEN without a number
    between them.
    """
    bounds = [bound.value for bound in (low, high) if isinstance(bound, Literal) and not isinstance(bound.value, str)]
    if len(bounds) == 2 and bounds[0] > bounds[1]:
        refuse(token.at, "the first bound of BETWEEN is larger than the second; swap them")
