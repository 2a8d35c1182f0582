"""Lexer of SQL filters: a text split into tokens, each with its position.

    a  NOT  BETWEEN  -  1.5E3  AND  10  '  it''s  '  <>     names, keywords, signs, numbers, texts

Law: linear in the text, because each token is matched once without backtracking (the repeats in
`_TOKEN` are possessive or unambiguous). Every text ends in tokens or in IllegalFilter. Keywords are
case-insensitive, names are case-sensitive. Reference: Apache RocketMQ 5, SelectorParser.jj.
"""

import re
from dataclasses import dataclass
from typing import Final, NoReturn

from tern_wire.errors import IllegalFilter
from tern_wire.limits import FILTER_NUMBER_LENGTH_MAX, FILTER_TOKENS_MAX

KEYWORDS = frozenset(
    {
        *("AND", "OR", "NOT", "BETWEEN", "IN", "IS", "NULL", "TRUE", "FALSE"),
        *("CONTAINS", "STARTSWITH", "ENDSWITH"),
    }
)
NAME, NUMBER, TEXT, END = "name", "number", "text", "end"
# Range of Java's long, the integers of RocketMQ.
INTEGER_MIN, INTEGER_MAX = -(2**63), 2**63 - 1

_BLANK = re.compile(r"[ \t\n\r\f]*+")
_TOKEN = re.compile(
    r"(?P<word>[A-Za-z_$][A-Za-z0-9_$]*+)"
    r"|(?P<number>(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)(?P<long>[lL]?)"
    r"|'(?P<text>[^']*+(?:''[^']*+)*+)'"
    r"|(?P<sign><>|<=|>=|[=<>(),+-])"
)
# Characters that may not follow a number: RocketMQ would read `5abc` as two words, which is never
# intended.
_GLUED = re.compile(r"[A-Za-z0-9_$.]")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f]")
_HINTS: Final = {
    "!": "'!' is no operator; write <> or NOT",
    '"': "texts stand in single quotes: 'eu'",
    "'": "this text has no closing quote; a quote inside is written twice",
    "&": "write AND",
    "|": "write OR",
    ";": "a filter is one condition; remove the ';'",
    "/": "a filter has no arithmetic and no comments",
    "*": "a filter has no arithmetic; to receive everything leave 'sql' out",
    "%": "a filter has no arithmetic and no LIKE; use CONTAINS, STARTSWITH or ENDSWITH",
    ".": "names have no dots",
}


@dataclass(frozen=True, slots=True)
class Token:
    """*kind* is NAME, NUMBER, TEXT, END, a keyword in capitals, or the sign itself; *at* counts
    characters from 0.
    """

    kind: str
    at: int
    # Name, unquoted text, or number.
    value: str | int | float = ""


def tokens_of(sql: str) -> list[Token]:
    """Return the tokens of *sql* and a final END.

    Raise IllegalFilter for an illegal token, and for more than FILTER_TOKENS_MAX tokens.
    """
    found: list[Token] = []
    control = _CONTROL.search(sql)
    if control is not None:
        refuse(control.start(), f"{control.group()!r} is a control character")
    at, end = _after_blanks(sql, 0), len(sql)
    while at < end:
        if len(found) == FILTER_TOKENS_MAX:
            refuse(at, f"the filter has more than {FILTER_TOKENS_MAX} words and signs; shorten it")
        match = _TOKEN.match(sql, at)
        if match is None:
            refuse(at, _HINTS.get(sql[at], f"{sql[at]!r} does not belong into a filter"))
        found.append(_token(sql, match))
        at = _after_blanks(sql, match.end())
    found.append(Token(END, end))
    return found


def refuse(at: int, reason: str) -> NoReturn:
    """Raise IllegalFilter at character *at*, counted from 0."""
    raise IllegalFilter(reason=reason, position=at)


def shown(text: str) -> str:
    """Shorten *text*, which is untrusted, for an error."""
    return repr(text if len(text) <= 40 else text[:40] + "...")


def _after_blanks(sql: str, at: int) -> int:
    match = _BLANK.match(sql, at)
    return match.end() if match is not None else at


def _token(sql: str, match: re.Match[str]) -> Token:
    at, word = match.start(), match["word"]
    if word is not None:
        keyword = word.upper()
        return Token(keyword, at) if keyword in KEYWORDS else Token(NAME, at, word)
    if match["number"] is not None:
        return Token(NUMBER, at, _number(sql, match))
    if match["text"] is not None:
        return Token(TEXT, at, match["text"].replace("''", "'"))
    if sql.startswith("--", at):
        refuse(at, "a filter has no comments and no double signs")
    return Token(match["sign"], at)


def _number(sql: str, match: re.Match[str]) -> int | float:
    digits, at = match["number"], match.start()
    if _GLUED.match(sql, match.end()):
        refuse(at, f"{shown(sql[at : match.end() + 1])} begins like a number and is none")
    if len(digits) > FILTER_NUMBER_LENGTH_MAX:
        refuse(at, f"a number has at most {FILTER_NUMBER_LENGTH_MAX} characters")
    if digits.isdecimal():
        value = int(digits)
        # One more than the maximum is legal for the smallest integer, whose sign precedes; the
        # parser checks again.
        if value > INTEGER_MAX + 1:
            refuse(at, f"{shown(digits)} is outside {INTEGER_MIN} to {INTEGER_MAX}; write it with a decimal point")
        return value
    if match["long"]:
        refuse(at, "only integers may end in 'L'")
    decimal = float(digits)
    if decimal == float("inf"):
        refuse(at, f"{shown(digits)} is larger than any number can be")
    return decimal
