"""Filters told twice: as text for the product and as a tree for an evaluation that anybody can follow. Shares no code with the product.

A tree is a tuple: ("and" | "or", trees), ("not", tree), ("constant", truth), ("compare", sign, operand, operand),
("between", operand, low, high), ("in", name, literals), ("search", how, name, text), ("null", name); an operand is ("property", name)
or ("literal", as written, value). `says` gives True, False or None for unknown, by the tables of Kleene's logic.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any

Tree = tuple[Any, ...]
Truth = bool | None

NAMES = ("a", "b", "price", "region", "TAGS", "KEYS", "_x$1", "Order", "nothing")
# Texts that look like numbers, nearly like numbers, like truth, and like nothing at all.
TEXTS = (
    *(
        "3",
        "3.0",
        "-5",
        "+7",
        "007",
        "1e2",
        "1E+2",
        ".5",
        "5.",
        "100",
        "9007199254740993",
        "9007199254740992",
        "-0",
        "0",
        "1e999",
    ),
    *(
        "",
        " 3",
        "3 ",
        "0x10",
        "1_000",
        "nan",
        "Infinity",
        "١٢",
        "5L",
        "1e",
        "e5",
        ".",
        "-",
        "--5",
        "9" * 64,
        "9" * 65,
        "3,5",
    ),
    *(
        "true",
        "TRUE",
        "True",
        "false",
        "yes",
        "abc",
        "abcabc",
        "ab",
        "it's",
        "''",
        "é",
        "日本",
        "a b",
        "NULL",
        "AND",
        "\U0001f600",
    ),
)
INTEGERS = ("0", "3", "5", "7", "100", "99L", "007", "9007199254740993", "9223372036854775807")
DECIMALS = ("3.0", "0.5", ".5", "5.", "1e2", "1E-3", "99.9", "9007199254740992.0")
SIGNS = ("=", "<>", "<", "<=", ">", ">=")


def says(tree: Tree, properties: Mapping[str, str]) -> Truth:
    """What the condition is for a message with *properties*."""
    match tree:
        case ("and", parts):
            return _and([says(part, properties) for part in parts])
        case ("or", parts):
            return _not(_and([_not(says(part, properties)) for part in parts]))
        case ("not", part):
            return _not(says(part, properties))
        case ("constant", truth):
            return bool(truth)
        case ("compare", sign, left, right):
            return _compare(sign, left, right, properties)
        case ("between", operand, low, high):
            return _and([_compare(">=", operand, low, properties), _compare("<=", operand, high, properties)])
        case ("in", name, literals):
            equal = [_compare("=", ("property", name), literal, properties) for literal in literals]
            return _not(_and([_not(part) for part in equal]))
        case ("search", how, name, text):
            value = properties.get(name)
            if value is None:
                return None
            at = value.find(text)
            return bool({"CONTAINS": at >= 0, "STARTSWITH": at == 0, "ENDSWITH": value[-len(text) :] == text}[how])
        case ("null", name):
            return name not in properties
    raise AssertionError(tree)


def _and(truths: Sequence[Truth]) -> Truth:
    if any(truth is False for truth in truths):
        return False
    return None if any(truth is None for truth in truths) else True


def _not(truth: Truth) -> Truth:
    return None if truth is None else not truth


def _compare(sign: str, left: Tree, right: Tree, properties: Mapping[str, str]) -> Truth:
    one, other = _value(left, properties), _value(right, properties)
    if one is None or other is None:
        return None
    is_order = sign not in {"=", "<>"}
    both = {type(_value(side, {})) for side in (left, right) if side[0] == "literal"}
    if bool in both:
        one, other = (value.lower() == "true" if isinstance(value, str) else value for value in (one, other))
    elif is_order or both & {int, float}:
        one, other = (plain_number(value) if isinstance(value, str) else value for value in (one, other))
        if one is None or other is None:
            return None
    if sign in {"=", "<>"}:
        return (one == other) is (sign == "=")
    assert not isinstance(one, str | bool)
    assert not isinstance(other, str | bool)
    return {"<": one < other, "<=": not one > other, ">": one > other, ">=": not one < other}[sign]


def _value(operand: Tree, properties: Mapping[str, str]) -> str | int | float | bool | None:
    if operand[0] == "property":
        return properties.get(operand[1])
    value: str | int | float | bool = operand[2]
    return value


def plain_number(text: str) -> int | float | None:
    """The number that *text* says, found character by character."""
    if not 0 < len(text) <= 64:
        return None
    rest = text[1:] if text[0] in "+-" else text
    mantissa, mark, exponent = rest.replace("E", "e").partition("e")
    if mark and not _digits(exponent[1:] if exponent[:1] in {"+", "-"} else exponent):
        return None
    whole, point, part = mantissa.partition(".")
    if not (whole or part) or any(piece and not _digits(piece) for piece in (whole, part)):
        return None
    return float(text) if mark or point else int(text)


def _digits(text: str) -> bool:
    return bool(text) and all(character in "0123456789" for character in text)


class Author:
    """Owns the chance by which trees, their texts and messages are made."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    # Trees -------------------------------------------------------------------------------------------------------
    def tree(self, depth: int = 3) -> Tree:
        """A condition of at most so many levels."""
        rng = self._rng
        if depth and rng.random() < 0.6:
            if rng.random() < 0.3:
                return ("not", self.tree(depth - 1))
            parts = [self.tree(depth - 1) for _ in range(rng.choice((2, 2, 2, 3, 5)))]
            return (rng.choice(("and", "or")), parts)
        kind = rng.choices(("compare", "between", "in", "search", "null", "constant"), (10, 3, 3, 3, 2, 1))[0]
        name = rng.choice(NAMES)
        if kind == "null":
            return ("null", name)
        if kind == "constant":
            return ("constant", rng.random() < 0.5)
        if kind == "search":
            text = rng.choice([text for text in TEXTS if text])
            return ("search", rng.choice(("CONTAINS", "STARTSWITH", "ENDSWITH")), name, text[: rng.randrange(1, 4)])
        if kind == "in":
            return ("in", name, [self.literal() for _ in range(rng.randrange(1, 6))])
        if kind == "between":
            low, high = sorted((self.number(), self.number()), key=lambda literal: literal[2])
            operand = ("property", name) if rng.random() < 0.8 else self.number()
            bounds = (("property", rng.choice(NAMES)) if rng.random() < 0.2 else bound for bound in (low, high))
            return ("between", operand, *bounds)
        return self._comparison(name)

    def _comparison(self, name: str) -> Tree:
        rng = self._rng
        sign = rng.choice(SIGNS)
        is_order = sign not in {"=", "<>"}
        if rng.random() < 0.05:
            sides = [self.number(), self.number()] if is_order or rng.random() < 0.5 else [self.text(), self.text()]
        elif rng.random() < 0.2:
            sides = [("property", name), ("property", rng.choice(NAMES))]
        else:
            sides = [("property", name), self.number() if is_order else self.literal()]
        if rng.random() < 0.3:
            sides.reverse()
        return ("compare", sign, *sides)

    def literal(self) -> Tree:
        """A text, a number or a truth value, as written and as meant."""
        truth = self._rng.choice((True, False))
        return self._rng.choice((self.text(), self.text(), self.number(), ("literal", str(truth).upper(), truth)))

    def text(self) -> Tree:
        """A text in its quotes."""
        text = self._rng.choice(TEXTS)
        return ("literal", "'" + text.replace("'", "''") + "'", text)

    def number(self) -> Tree:
        """A number, half of them integers, some with a sign."""
        is_whole = self._rng.random() < 0.5
        digits = self._rng.choice(INTEGERS if is_whole else DECIMALS)
        sign = self._rng.choice(("", "", "", "-", "+", "- "))
        value = int(digits.rstrip("L")) if is_whole else float(digits)
        return ("literal", sign + digits, -value if "-" in sign else value)

    # Texts -------------------------------------------------------------------------------------------------------
    def written(self, tree: Tree, tight: int = 0) -> str:
        """*tree* as SQL in one of many ways: blanks, case of keywords, needless parentheses, NOT before or inside."""
        rng = self._rng
        own, text = self._plain(tree)
        if own < tight or rng.random() < 0.08:
            return f"({self._blanks()}{text}{self._blanks()})"
        return text

    def _plain(self, tree: Tree) -> tuple[int, str]:
        match tree:
            case ("and" | "or", parts):
                own = 1 if tree[0] == "and" else 0
                word = f"{self._gap()}{self._word(tree[0])}{self._gap()}"
                return own, word.join(self.written(part, own) for part in parts)
            case ("not", ("between" | "in" | "search", *_) as part) if self._rng.random() < 0.5:
                return 3, self._test(part, f"{self._word('not')}{self._gap()}")
            case ("not", ("null", name)) if self._rng.random() < 0.5:
                return 3, f"{name}{self._gap()}{self._word('is')}{self._gap()}{self._word('not')} {self._word('null')}"
            case ("not", part):
                return 2, f"{self._word('not')}{self._gap()}{self.written(part, 2)}"
        return 3, self._test(tree, "")

    def _test(self, tree: Tree, negation: str) -> str:
        gap, word = self._gap, self._word
        match tree:
            case ("constant", truth):
                return word(str(truth))
            case ("null", name):
                return f"{self._operand(('property', name))}{gap()}{word('is')}{gap()}{word('null')}"
            case ("compare", sign, left, right):
                return f"{self._operand(left)}{self._blanks()}{sign}{self._blanks()}{self._operand(right)}"
            case ("between", operand, low, high):
                bounds = f"{self._operand(low)}{gap()}{word('and')}{gap()}{self._operand(high)}"
                return f"{self._operand(operand)}{gap()}{negation}{word('between')}{gap()}{bounds}"
            case ("in", name, literals):
                listed = f"{self._blanks()},{self._blanks()}".join(literal[1] for literal in literals)
                return f"{name}{gap()}{negation}{word('in')}{self._blanks()}({listed})"
            case ("search", how, name, text):
                quoted = text.replace("'", "''")
                return f"{name}{gap()}{negation}{word(how)}{self._blanks()}'{quoted}'"
        raise AssertionError(tree)

    def _operand(self, operand: Tree) -> str:
        text = str(operand[1])
        return f"({text})" if self._rng.random() < 0.05 else text

    def _word(self, word: str) -> str:
        return self._rng.choice((word.upper(), word.lower(), word.capitalize()))

    def _blanks(self) -> str:
        return self._rng.choice(("", " ", " ", "  ", "\t", "\n"))

    def _gap(self) -> str:
        return self._rng.choice((" ", " ", "  ", "\t", " \r\n"))

    # Messages ----------------------------------------------------------------------------------------------------
    def properties(self) -> dict[str, str]:
        """Those of one message."""
        rng = self._rng
        names = rng.sample(NAMES[:-1], rng.randrange(len(NAMES)))
        return {name: rng.choice(TEXTS) if rng.random() < 0.8 else str(rng.randrange(110)) for name in names}
