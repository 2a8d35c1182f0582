"""The Worker that `MODULE:NAME` names, imported from the folder in which the command runs."""

import importlib
import sys
import traceback
from pathlib import Path

from tern_cli.failures import CommandFailed
from tern_client import Worker

_TITLE = "The worker cannot be imported"
_LINES_MAX = 12


def load_worker(target: str) -> Worker:
    """Return the Worker *target*, such as `app:worker`. CommandFailed (exit 2) says what is not
    there, or shows the end of the traceback of the program itself.
    """
    module_name, _, name = target.partition(":")
    if not module_name or not name or not all(part.isidentifier() for part in f"{module_name}.{name}".split(".")):
        raise CommandFailed(_TITLE, f"'{target[:80]}' should look like app:worker, a module and a name.", exit_code=2)
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found: object = importlib.import_module(module_name)
        for part in name.split("."):
            found = getattr(found, part)
    except ModuleNotFoundError as error:
        if error.name and f"{module_name}.".startswith(f"{error.name}."):
            file = f"{module_name.replace('.', '/')}.py"
            raise CommandFailed(
                _TITLE,
                f"cannot import {module_name}: {folder} has no such module; run it from the folder that has {file}.",
                exit_code=2,
            ) from error
        raise CommandFailed(
            _TITLE,
            f"cannot import {module_name}: it needs '{error.name}'; install that.",
            exit_code=2,
            lines=_end(error),
        ) from error
    except AttributeError as error:
        raise CommandFailed(
            _TITLE,
            f"cannot take {target}: {error}; write `{name} = Worker(...)` there.",
            exit_code=2,
            lines=_end(error),
        ) from error
    except Exception as error:
        detail = f"cannot import {module_name}: {type(error).__name__}: {error}"
        raise CommandFailed(_TITLE, detail, exit_code=2, lines=_end(error)) from error
    if not isinstance(found, Worker):
        raise CommandFailed(_TITLE, f"{target} is a {type(found).__name__}; name a tern_client.Worker.", exit_code=2)
    return found


def _end(error: BaseException) -> list[str]:
    """The last lines of the traceback, without the frames of the import itself."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename != __file__ and "importlib" not in frame.filename
    ]
    lines = [*traceback.format_list(frames), *traceback.format_exception_only(error)] if frames else []
    return "".join(lines).splitlines()[-_LINES_MAX:]
