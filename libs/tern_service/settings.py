"""Settings: one frozen dataclass per service, filled from command line and environment.

Each field is `--field-name VALUE` and `{PREFIX}FIELD_NAME`; the command line wins. Nothing is
ignored: an unknown option or variable ends the process with the nearest known name. Errors are one
sentence and exit code 78 (Reference: EX_CONFIG of sysexits.h).
"""

import argparse
import difflib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, field, fields
from pathlib import Path
from typing import Any, NoReturn, TypeVar, get_type_hints

from tern_wire.errors import TernError
from tern_wire.times import parse_duration_ms

EXIT_CONFIG = 78

K = TypeVar("K")

_BOOLS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


class SettingsError(SystemExit):
    """Unusable settings; `text` is the sentence printed on stderr. Ends the process with 78."""

    def __init__(self, text: str) -> None:
        super().__init__(EXIT_CONFIG)
        self.text = text

    def __str__(self) -> str:
        return self.text


def refuse(text: str) -> NoReturn:
    """Print *text*, one sentence with the fix, on stderr and end the process with exit code 78."""
    print(f"error: {text}", file=sys.stderr)
    raise SettingsError(text)


def setting(default: Any = MISSING, *, help: str, minimum: int | None = None, maximum: int | None = None) -> Any:
    """A dataclass field with its text for `--help` (with the unit) and its inclusive range."""
    return field(default=default, metadata={"help": help, "minimum": minimum, "maximum": maximum})


def load_settings(kind: type[K], *, prefix: str, environ: Mapping[str, str], arguments: Sequence[str]) -> K:
    """Make a *kind* from *arguments* (without the program's name) and *environ*'s *prefix*
    variables.
    Types: str, int, bool, Path, tuple[str, ...] (commas, or the option repeated). A number named
    `..._ms` also takes `30s` or `2h`. SettingsError (exit 78) for anything unknown, missing,
    unreadable or refused by `__post_init__`.
    """
    known = fields(kind)  # type: ignore[arg-type]
    types = get_type_hints(kind)
    given = _from_environ(known, types, prefix, environ) | _from_arguments(kind, known, types, prefix, arguments)
    for each in known:
        if each.name not in given and each.default is MISSING and each.default_factory is MISSING:
            refuse(f"{_option(each.name)} is not set; give it, or set {prefix}{each.name.upper()}.")
    try:
        return kind(**given)
    except ValueError as error:
        refuse(str(error))
    except TernError as error:
        refuse(error.detail)


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _nearest(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
    return f"; the nearest one is {near[0]}" if near else ""


def _from_environ(
    known: Sequence[Field[Any]], types: Mapping[str, Any], prefix: str, environ: Mapping[str, str]
) -> dict[str, Any]:
    by_variable = {prefix + each.name.upper(): each for each in known}
    given: dict[str, Any] = {}
    for variable in sorted(environ):
        if not variable.startswith(prefix):
            continue
        each = by_variable.get(variable)
        if each is None:
            refuse(f"{variable} is not a setting{_nearest(variable, list(by_variable))}.")
        given[each.name] = _read(each, types[each.name], [environ[variable]], variable)
    return given


def _from_arguments(
    kind: type[Any], known: Sequence[Field[Any]], types: Mapping[str, Any], prefix: str, arguments: Sequence[str]
) -> dict[str, Any]:
    parser = _Parser(
        prog=kind.__module__.partition(".")[0],
        description=(kind.__doc__ or "").strip(),
        epilog=f"Each option is also a variable, such as {prefix}{known[0].name.upper()}; the command line wins.",
        allow_abbrev=False,
    )
    for each in known:
        text = _help(each, prefix)
        if types[each.name] is bool:
            parser.add_argument(_option(each.name), action=argparse.BooleanOptionalAction, default=None, help=text)
        else:
            metavar = _metavar(each.name, types[each.name])
            parser.add_argument(_option(each.name), action="append", metavar=metavar, help=text)
    parsed, extra = parser.parse_known_args(list(arguments))
    if extra:
        unknown = extra[0].partition("=")[0]
        refuse(f"{unknown} is not an option{_nearest(unknown, [_option(each.name) for each in known])}.")
    given: dict[str, Any] = {}
    for each in known:
        value = getattr(parsed, each.name)
        if value is not None:
            kind_of = types[each.name]
            given[each.name] = value if kind_of is bool else _read(each, kind_of, value, _option(each.name))
    return given


class _Parser(argparse.ArgumentParser):
    """argparse with our form of errors."""

    def error(self, message: str) -> NoReturn:
        refuse(f"{message}; see --help.")


def _metavar(name: str, kind: Any) -> str:
    if kind is int:
        return "MS" if name.endswith("_ms") else "N"
    return "PATH" if kind is Path else "A,B" if kind is not str else "TEXT"


def _help(each: Field[Any], prefix: str) -> str:
    parts = [each.metadata.get("help", "").rstrip(".")]
    if each.default is MISSING and each.default_factory is MISSING:
        parts.append("required")
    else:
        default = each.default if each.default_factory is MISSING else each.default_factory()
        shown = ",".join(default) if isinstance(default, tuple) else default
        parts.append(f"default {shown}" if shown != "" else "default: none")
    parts.append(prefix + each.name.upper())
    return "; ".join(part for part in parts if part).replace("%", "%%")


def _read(each: Field[Any], kind: Any, texts: Sequence[str], source: str) -> Any:
    """Decode the last of *texts* as *kind* (all of them for a tuple); *source* names the
    setting.
    """
    text = texts[-1]
    if kind is bool:
        value = _BOOLS.get(text.strip().lower())
        if value is None:
            refuse(f"{source} is '{text}'; use true or false.")
        return value
    if kind is int:
        return _read_int(each, text, source)
    if kind is Path:
        if not text:
            refuse(f"{source} is empty; give a path.")
        return Path(text)
    if kind is str:
        return text
    return tuple(part.strip() for one in texts for part in one.split(",") if part.strip())


def _read_int(each: Field[Any], text: str, source: str) -> int:
    try:
        number = parse_duration_ms(text) if each.name.endswith("_ms") else int(text)
    except ValueError:
        example = "milliseconds, or a time such as 30s" if each.name.endswith("_ms") else "a whole number"
        refuse(f"{source} is '{text}'; use {example}.")
    minimum, maximum = each.metadata.get("minimum"), each.metadata.get("maximum")
    if (minimum is not None and number < minimum) or (maximum is not None and number > maximum):
        span = f"{minimum} to {maximum}" if maximum is not None else f"{minimum} or more"
        refuse(f"{source} is {text}; use {span}.")
    return number
