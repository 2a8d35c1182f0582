"""Evaluation of SQL filters: a tree compiled to functions over the properties of one message.

Values are texts. A number is compared with the number that the text denotes (decimal digits, with
sign, point and exponent; by value, so that 3, 3.0 and 3e0 are equal; integers exactly, decimals as
doubles). TRUE and FALSE are compared with whether the text is `true` in any case. Texts and other
properties are compared by their characters. An order (<, BETWEEN) is an order of numbers, even
between two properties.

Law: three truth values. A comparison is unknown when one of its properties is missing, or is not a
number where a number is needed. NOT, AND and OR are Kleene's. Only messages for which the filter is
true are delivered. No third value is needed at run time: a condition is true exactly if its `_test`
for True holds, and false exactly if its `_test` for False holds; a NOT swaps the two, and neither
holds for unknown.

As in RocketMQ, a comparison with a number does not match a text that is not a number. Where
RocketMQ throws, the comparison is unknown here, so that `a > 5 OR b = 'x'` can still be true.
`tern_wire.filters` lists more of these differences.
"""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tern_wire.limits import FILTER_NUMBER_LENGTH_MAX
from tern_wire.sql.conditions import (
    AllOf,
    AnyOf,
    Between,
    Compare,
    Condition,
    IsNull,
    Literal,
    Not,
    OneOf,
    Property,
    Search,
)

Number = int | float
# Values of one message: for each use of a property its text, number or truth value; None if
# missing.
Values = list[Any]
Test = Callable[[Values], bool]

_NUMBER = re.compile(r"[+-]?(?:[0-9]++(\.[0-9]*+)?|(\.[0-9]++))([eE][+-]?[0-9]++)?")
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
# Offsets in `Values` of a property's number and truth value behind its text, and the number of
# slots of a property.
_AS_NUMBER, _AS_TRUTH, _USES = 1, 2, 3
# Measured on one slow core: a test, and a search in a text of 8 KiB that resembles the searched
# text.
_TEST_MAX_US, _SEARCH_MAX_US = 0.2, 70.0
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


def number_of(text: str) -> Number | None:
    """Return the number that *text* denotes; None if there is none or the text exceeds
    FILTER_NUMBER_LENGTH_MAX.
    """
    if len(text) > FILTER_NUMBER_LENGTH_MAX:
        return None
    if text.isdecimal() and text.isascii():
        return int(text)
    match = _NUMBER.fullmatch(text)
    if match is None:
        return None
    return float(text) if match.lastindex else int(text)


def truth_of(text: str) -> bool:
    """Return whether *text* is `true` in any case; other texts are false, as in Java."""
    return text.lower() == "true"


class Program:
    """Condition compiled once: *names*, the properties that it reads, and `holds`, which evaluates
    their texts.

    *cost_max_us* is the longest time of an evaluation, for values as long as a message can have.
    """

    __slots__ = ("_numbers", "_size", "_test", "_truths", "cost_max_us", "names")

    def __init__(self, condition: Condition) -> None:
        places = _Places()
        self._test = _test(condition, True, places)
        self.names = tuple(places.names)
        self._size = len(self.names) * _USES
        self._numbers, self._truths = tuple(places.numbers), tuple(places.truths)
        self.cost_max_us = places.tests * _TEST_MAX_US + places.searches * _SEARCH_MAX_US

    def holds(self, texts: Sequence[str | None]) -> bool:
        """Return whether the condition is true when the properties *names* have these *texts*
        (None: missing).
        """
        values: Values = [None] * self._size
        values[::_USES] = texts
        for at in self._numbers:
            if (text := values[at - _AS_NUMBER]) is not None:
                values[at] = number_of(text)
        for at in self._truths:
            if (text := values[at - _AS_TRUTH]) is not None:
                values[at] = truth_of(text)
        return self._test(values)


class _Places:
    """Owner of the layout of `Values`: the slots of texts, numbers and truth values, and which of
    the latter two are needed.

    Also counts the tests, and CONTAINS separately.
    """

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.numbers: dict[int, None] = {}
        self.truths: dict[int, None] = {}
        self.tests = self.searches = 0

    def text(self, name: str) -> int:
        return self.names.setdefault(name, len(self.names)) * _USES

    def number(self, name: str) -> int:
        at = self.text(name) + _AS_NUMBER
        self.numbers[at] = None
        return at

    def truth(self, name: str) -> int:
        at = self.text(name) + _AS_TRUTH
        self.truths[at] = None
        return at


def _test(condition: Condition, wanted: bool, places: _Places) -> Test:
    """Return a test that holds exactly if *condition* is *wanted*, neither the opposite nor
    unknown.
    """
    places.tests += 1
    match condition:
        case Literal():
            return _constant(condition.value is wanted)
        case Not():
            return _test(condition.condition, not wanted, places)
        case AllOf() | AnyOf():
            tests = [_test(part, wanted, places) for part in condition.conditions]
            return _every(tests) if isinstance(condition, AllOf) is wanted else _some(tests)
        case Compare():
            return _comparison(condition.sign if wanted else _OPPOSITE[condition.sign], condition, places)
        case Between():
            bounds = (Compare(">=", condition.value, condition.low), Compare("<=", condition.value, condition.high))
            return _test(AllOf(bounds), wanted, places)
        case OneOf():
            return _membership(condition, wanted, places)
        case Search():
            places.searches += condition.how == "CONTAINS"
            return _search(condition, wanted, places.text(condition.name))
        case IsNull():
            at = places.text(condition.name)
            return (lambda values: values[at] is None) if wanted else (lambda values: values[at] is not None)


def _constant(holds: bool) -> Test:
    return lambda values: holds


def _every(tests: list[Test]) -> Test:
    if len(tests) == 2:
        first, second = tests
        return lambda values: first(values) and second(values)

    def every(values: Values) -> bool:
        for test in tests:  # noqa: SIM110 - a generator for every message costs more than the tests
            if not test(values):
                return False
        return True

    return every


def _some(tests: list[Test]) -> Test:
    if len(tests) == 2:
        first, second = tests
        return lambda values: first(values) or second(values)

    def some(values: Values) -> bool:
        for test in tests:  # noqa: SIM110 - as above
            if test(values):
                return True
        return False

    return some


def _comparison(sign: str, condition: Compare, places: _Places) -> Test:
    left, right = condition.left, condition.right
    if isinstance(left, Literal) and isinstance(right, Property):
        left, right, sign = right, left, _MIRRORED[sign]
    compare = _OPERATORS[sign]
    if isinstance(left, Literal):
        assert isinstance(right, Literal)
        return _constant(compare(left.value, right.value))
    if isinstance(right, Property):
        place = places.text if sign in {"=", "<>"} else places.number
        return _two_properties(compare, place(left.name), place(right.name))
    at, value = _place_for(right, left.name, places), right.value
    if sign == "=":
        return lambda values: values[at] == value

    def differs(values: Values) -> bool:
        found = values[at]
        return found is not None and compare(found, value)

    return differs


def _two_properties(compare: Callable[[Any, Any], bool], first: int, second: int) -> Test:
    def differ(values: Values) -> bool:
        left, right = values[first], values[second]
        return left is not None and right is not None and compare(left, right)

    return differ


def _place_for(literal: Literal, name: str, places: _Places) -> int:
    """Return the slot of property *name* for a comparison with *literal*."""
    if isinstance(literal.value, bool):
        return places.truth(name)
    return places.text(name) if isinstance(literal.value, str) else places.number(name)


def _membership(condition: OneOf, wanted: bool, places: _Places) -> Test:
    """Return the test of IN as an OR of `=`, which is false only if each of them is false."""
    sets: dict[int, set[object]] = {}
    for literal in condition.literals:
        sets.setdefault(_place_for(literal, condition.name, places), set()).add(literal.value)
    found = [(at, frozenset(values)) for at, values in sets.items()]
    if wanted:
        return _some([_is_in(at, values) for at, values in found])
    return _every([_is_known_outside(at, values) for at, values in found])


def _is_in(at: int, wanted: frozenset[object]) -> Test:
    return lambda values: values[at] in wanted


def _is_known_outside(at: int, refused: frozenset[object]) -> Test:
    def is_outside(values: Values) -> bool:
        found = values[at]
        return found is not None and found not in refused

    return is_outside


def _search(condition: Search, wanted: bool, at: int) -> Test:
    text = condition.text
    found_in: Mapping[str, Callable[[str], bool]] = {
        "CONTAINS": lambda value: text in value,
        "STARTSWITH": lambda value: value.startswith(text),
        "ENDSWITH": lambda value: value.endswith(text),
    }
    is_found = found_in[condition.how]

    def searches(values: Values) -> bool:
        value = values[at]
        return value is not None and is_found(value) is wanted

    return searches
