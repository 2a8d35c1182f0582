"""Parser of SQL filters: recursive descent with one token of lookahead and bounded depth.

    or        = and { OR and }
    and       = not { AND not }
    not       = NOT not | test
    test      = operand [ sign operand
                        | [NOT] BETWEEN operand AND operand
                        | [NOT] IN ( literal , ... )
                        | [NOT] (CONTAINS | STARTSWITH | ENDSWITH) text
                        | IS [NOT] NULL ]
    operand   = name | text | [+-] number | TRUE | FALSE | ( or )
    sign      = '=' '<>' '<' '<=' '>' '>='

Law: every text ends in a tree or in IllegalFilter with the position of the token that does not fit.
NOT binds looser than a comparison, as in SQL (`NOT a = 3` is `NOT (a = 3)`). A name alone is not a
condition. A comparison that could never be true for any message, or that RocketMQ refuses, is
refused here: an order of texts, NULL behind a sign, BETWEEN with reversed bounds. Reference: Apache
RocketMQ 5, SelectorParser.jj. This grammar adds IN over numbers and truth values, and omits
comments, arithmetic signs before names and comparisons of conditions.
"""

from tern_wire.errors import IllegalFilter
from tern_wire.limits import FILTER_DEPTH_MAX
from tern_wire.sql.checks import (
    as_condition,
    as_operand,
    as_property,
    is_truth,
    must_ascend,
    must_be_comparable,
    must_have_order,
    named,
)
from tern_wire.sql.conditions import (
    AllOf,
    AnyOf,
    Between,
    Compare,
    Condition,
    IsNull,
    Literal,
    OneOf,
    Operand,
    Property,
    Search,
    joined,
    negated,
)
from tern_wire.sql.lexer import END, INTEGER_MAX, INTEGER_MIN, NUMBER, TEXT, Token, refuse, tokens_of

_SIGNS = frozenset({"=", "<>", "<", "<=", ">", ">="})
_ORDERS = _SIGNS - {"=", "<>"}
_SEARCHES = frozenset({"CONTAINS", "STARTSWITH", "ENDSWITH"})
_NO_OPERANDS = {
    "NULL": "NULL is nothing to compare with; write IS NULL or IS NOT NULL",
    "NOT": "NOT stands before a whole condition, or before IN, BETWEEN and CONTAINS",
}
# Tokens that may follow an operand alone: in parentheses, or as a condition that is refused later.
_AFTER_OPERAND = frozenset({END, ")", "AND", "OR"})
_AFTER_NOT = _SEARCHES | {"BETWEEN", "IN"}


def parse_sql(sql: str, terms_max: int | None = None) -> Condition:
    """Parse *sql*, whose length the caller has checked; raise IllegalFilter with the position and
    the reason.

    *terms_max*: the largest number of terms, which are tests and values in lists of IN; None:
    limited by the tokens alone.
    """
    parser = _Parser(tokens_of(sql), terms_max)
    if parser.next.kind == END:
        refuse(0, "the expression is empty; leave 'sql' out to receive everything")
    condition = parser.condition()
    if parser.next.kind != END:
        refuse(parser.next.at, f"{named(parser.next)} was not expected here; join conditions with AND or OR")
    return condition


class _Parser:
    """Owner of the position in the tokens and of the count of terms."""

    def __init__(self, tokens: list[Token], terms_max: int | None) -> None:
        self._tokens, self._at, self._depth = tokens, 0, 0
        self._terms, self._terms_max = 0, terms_max

    @property
    def next(self) -> Token:
        """The current token."""
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._tokens[self._at]
        if token.kind != END:
            self._at += 1
        return token

    def _take_if(self, kind: str) -> bool:
        is_here = self._tokens[self._at].kind == kind
        self._at += is_here
        return is_here

    def _expect(self, kind: str, what: str) -> Token:
        token = self.next
        if token.kind != kind:
            refuse(token.at, f"{what} was expected, not {named(token)}")
        return self._take()

    def _count(self, token: Token) -> None:
        """Count one more term, which begins at *token*."""
        self._terms += 1
        if self._terms_max is not None and self._terms > self._terms_max:
            refuse(
                token.at,
                f"the filter has more than {self._terms_max} terms (tests, and values in lists of IN); shorten it",
            )

    def _enter(self, token: Token) -> None:
        self._depth += 1
        if self._depth > FILTER_DEPTH_MAX:
            refuse(token.at, f"parentheses and NOTs are more than {FILTER_DEPTH_MAX} deep; flatten the expression")

    # Conditions -----------------------------------------------------------------------------------
    def condition(self) -> Condition:
        """Parse an `or` that is a condition and not only an operand."""
        at = self.next.at
        return as_condition(self._either(), at)

    def _either(self) -> Condition | Operand:
        return self._chain("OR", AnyOf)

    def _chain(self, word: str, kind: type[AllOf] | type[AnyOf]) -> Condition | Operand:
        """Parse parts joined by *word*.

        A single part is returned as it is, for it may be an operand in parentheses.
        """
        at = self.next.at
        first = self._part(word)
        if self.next.kind != word:
            return first
        parts = [as_condition(first, at)]
        while self._take_if(word):
            at = self.next.at
            parts.append(as_condition(self._part(word), at))
        return joined(kind, parts)

    def _part(self, word: str) -> Condition | Operand:
        return self._chain("AND", AllOf) if word == "OR" else self._negation()

    def _negation(self) -> Condition | Operand:
        token = self.next
        if not self._take_if("NOT"):
            return self._test()
        self._enter(token)
        at = self.next.at
        condition = negated(as_condition(self._negation(), at))
        self._depth -= 1
        return condition

    # Comparisons ----------------------------------------------------------------------------------
    def _test(self) -> Condition | Operand:
        token = self.next
        left = self._operand()
        sign = self.next
        if sign.kind in _SIGNS:
            return self._comparison(token, left)
        if sign.kind == "IS":
            self._take()
            self._count(token)
            is_not = self._take_if("NOT")
            self._expect("NULL", "NULL")
            found: Condition = IsNull(as_property(left, token).name)
            return negated(found) if is_not else found
        is_not = sign.kind == "NOT"
        if is_not:
            self._take()
        if self.next.kind in _AFTER_NOT:
            found = self._membership(token, left)
            return negated(found) if is_not else found
        if is_not:
            refuse(self.next.at, f"behind NOT, BETWEEN, IN or CONTAINS was expected, not {named(self.next)}")
        if isinstance(left, Property | Literal) and not is_truth(left) and sign.kind not in _AFTER_OPERAND:
            refuse(sign.at, f"a comparison such as '=' or IN was expected, not {named(sign)}")
        return left

    def _comparison(self, token: Token, left: Condition | Operand) -> Condition:
        sign = self._take()
        self._count(token)
        other = self.next
        right = as_operand(self._operand(), other)
        left = as_operand(left, token)
        if sign.kind in _ORDERS:
            must_have_order(left, token)
            must_have_order(right, other)
        else:
            must_be_comparable(sign, left, right)
        if self.next.kind in _SIGNS:
            refuse(self.next.at, "comparisons are joined with AND, not put in a row")
        return Compare(sign.kind, left, right)

    def _membership(self, token: Token, left: Condition | Operand) -> Condition:
        word = self._take().kind
        if word != "IN":
            self._count(token)
        if word == "BETWEEN":
            return self._between(token, left)
        name = as_property(left, token).name
        if word == "IN":
            return self._one_of(name)
        text = self._expect(TEXT, f"a text behind {word}, such as 'eu',")
        if not text.value:
            refuse(text.at, f"{word} needs a text that is not empty")
        return Search(word, name, str(text.value))

    def _between(self, token: Token, left: Condition | Operand) -> Condition:
        value, first = as_operand(left, token), self.next
        low = as_operand(self._operand(), first)
        self._expect("AND", "AND between the two bounds of BETWEEN")
        second = self.next
        high = as_operand(self._operand(), second)
        for operand, where in ((value, token), (low, first), (high, second)):
            must_have_order(operand, where)
        must_ascend(low, high, first)
        return Between(value, low, high)

    def _one_of(self, name: str) -> Condition:
        self._expect("(", "'(' behind IN")
        literals = [self._literal()]
        while self._take_if(","):
            literals.append(self._literal())
        self._expect(")", "',' or ')' in the list of IN")
        # Distinct by their texts: Python treats 1 and True as equal.
        return OneOf(name, tuple({str(literal): literal for literal in literals}.values()))

    # Operands -------------------------------------------------------------------------------------
    def _literal(self) -> Literal:
        token = self.next
        self._count(token)
        found = as_operand(self._operand(), token)
        if not isinstance(found, Literal):
            refuse(token.at, f"a list of IN holds texts, numbers, TRUE and FALSE, not {named(token)}")
        return found

    def _operand(self) -> Condition | Operand:
        token = self._take()
        match token.kind:
            case "name":
                return Property(str(token.value))
            case "text":
                return Literal(token.value)
            case "TRUE" | "FALSE":
                return Literal(token.kind == "TRUE")
            case "number" | "+" | "-":
                return Literal(self._number(token))
            case "(":
                self._enter(token)
                inner = self._either()
                self._expect(")", "')'")
                self._depth -= 1
                return inner
        reason = _NO_OPERANDS.get(token.kind, f"a property or a literal was expected, not {named(token)}")
        raise IllegalFilter(position=token.at, reason=reason)

    def _number(self, token: Token) -> int | float:
        sign = 1
        if token.kind != NUMBER:
            sign = -1 if token.kind == "-" else 1
            number = self._expect(NUMBER, f"a number behind '{token.kind}'")
        else:
            number = token
        assert not isinstance(number.value, str)
        value = sign * number.value
        if isinstance(value, int) and value > INTEGER_MAX:
            refuse(number.at, f"{value} is outside {INTEGER_MIN} to {INTEGER_MAX}; write it with a decimal point")
        return value
