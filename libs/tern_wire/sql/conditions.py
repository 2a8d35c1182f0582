"""Tree of an SQL filter: operands, conditions on them, and the text of both.

Law: `str` of a condition is canonical. Parsed again it is the same tree (unless it has become too
long for a filter's text). Filters have the same text if they differ only in blanks, in the case of
keywords, in redundant parentheses, in the position of NOT, or in the spelling of a number.
"""

from dataclasses import dataclass

# Precedence of conditions, for the parentheses in their text.
_OR, _AND, _NOT, _ONE = range(4)


@dataclass(frozen=True, slots=True)
class Property:
    """Value of the message's property *name*: a text, or missing."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Literal:
    """Text, number or truth value written in the filter. TRUE and FALSE are conditions, too."""

    value: str | int | float | bool

    def __str__(self) -> str:
        if isinstance(self.value, bool):
            return "TRUE" if self.value else "FALSE"
        if isinstance(self.value, str):
            return "'" + self.value.replace("'", "''") + "'"
        return repr(self.value)


Operand = Property | Literal


@dataclass(frozen=True, slots=True)
class Compare:
    """*left* *sign* *right*; the sign is one of = <> < <= > >=."""

    sign: str
    left: Operand
    right: Operand

    def __str__(self) -> str:
        return f"{self.left} {self.sign} {self.right}"


@dataclass(frozen=True, slots=True)
class Between:
    """*low* <= *value* <= *high*."""

    value: Operand
    low: Operand
    high: Operand

    def __str__(self) -> str:
        return self.written()

    def written(self, negation: str = "") -> str:
        """Return the text, with *negation* in the position of NOT."""
        return f"{self.value} {negation}BETWEEN {self.low} AND {self.high}"


@dataclass(frozen=True, slots=True)
class OneOf:
    """The property equals one of *literals*, of which there is at least one."""

    name: str
    literals: tuple[Literal, ...]

    def __str__(self) -> str:
        return self.written()

    def written(self, negation: str = "") -> str:
        """Return the text, with *negation* in the position of NOT."""
        return f"{self.name} {negation}IN ({', '.join(map(str, self.literals))})"


@dataclass(frozen=True, slots=True)
class Search:
    """The property's text CONTAINS, STARTSWITH or ENDSWITH *text*, which is not empty."""

    how: str
    name: str
    text: str

    def __str__(self) -> str:
        return self.written()

    def written(self, negation: str = "") -> str:
        """Return the text, with *negation* in the position of NOT."""
        return f"{self.name} {negation}{self.how} {Literal(self.text)}"


@dataclass(frozen=True, slots=True)
class IsNull:
    """The property is missing."""

    name: str

    def __str__(self) -> str:
        return f"{self.name} IS NULL"


@dataclass(frozen=True, slots=True)
class Not:
    """Negation of *condition*; unknown stays unknown. Never of another `Not`: see `negated`."""

    condition: "Condition"

    def __str__(self) -> str:
        # NOT is written where it nests least: a filter of legal depth must not have a canonical
        # text that is too deep.
        match self.condition:
            case Between() | OneOf() | Search():
                return self.condition.written("NOT ")
            case IsNull(name):
                return f"{name} IS NOT NULL"
        return f"NOT {_within(self.condition, _NOT)}"


@dataclass(frozen=True, slots=True)
class AllOf:
    """Conditions joined by AND, two or more, none of them an `AllOf` itself."""

    conditions: tuple["Condition", ...]

    def __str__(self) -> str:
        return " AND ".join(_within(condition, _AND) for condition in self.conditions)


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Conditions joined by OR, two or more, none of them an `AnyOf` itself."""

    conditions: tuple["Condition", ...]

    def __str__(self) -> str:
        return " OR ".join(_within(condition, _OR) for condition in self.conditions)


Condition = Literal | Compare | Between | OneOf | Search | IsNull | Not | AllOf | AnyOf


def negated(condition: Condition) -> Condition:
    """Return NOT *condition*; a double NOT cancels."""
    return condition.condition if isinstance(condition, Not) else Not(condition)


def joined(kind: type[AllOf] | type[AnyOf], conditions: list[Condition]) -> Condition:
    """Join *conditions*, one or more, by AND (`AllOf`) or OR (`AnyOf`); flatten nested ones of the
    same kind.
    """
    spread: list[Condition] = []
    for condition in conditions:
        spread.extend(condition.conditions if isinstance(condition, kind) else (condition,))
    return spread[0] if len(spread) == 1 else kind(tuple(spread))


def _within(condition: Condition, place: int) -> str:
    """Return the text of *condition* inside an expression of precedence *place*."""
    own = {AnyOf: _OR, AllOf: _AND}.get(type(condition), _ONE)
    return str(condition) if own > place else f"({condition})"
