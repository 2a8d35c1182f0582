"""Errors of the operating system about files, as sentences with a remedy; never a bare errno."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from tern_cli.failures import CommandFailed

# The problem of {file}, and its remedy. {else} names the way to choose another place.
_FILES = {
    errno.ENOENT: "There is no {file}, or no folder to make it in; {else}",
    errno.EEXIST: "{file} exists already, and a new file is needed; {else}",
    errno.ENOTDIR: "{file} is a file, or lies below one, where a folder is needed; {else}",
    errno.EISDIR: "{file} is a folder, where a file is needed; move it, or {else}",
    errno.ENOTEMPTY: "{file} is a folder with something in it; move that, or {else}",
    errno.EACCES: "This user may not use {file}: change its permissions (chown, chmod), or {else}",
    errno.EPERM: "This user may not use {file}: change its permissions (chown, chmod), or {else}",
    errno.EROFS: "{file} is on a file system that is mounted read-only; {else}",
    errno.ENOSPC: "There is no space for {file}: free some, or {else}",
    errno.EDQUOT: "This user's quota has no space for {file}: free some, or {else}",
    errno.EFBIG: "{file} would be larger than its file system, or this user, allows; {else}",
    errno.ENAMETOOLONG: "{file} is too long for a name; {else}",
    errno.ELOOP: "{file} is a link that may not be followed, or is part of a loop of links; {else}",
    errno.ETXTBSY: "{file} is being run, and cannot be written; {else}",
    errno.EIO: "{file} cannot be read or written: the disk fails. Look at the kernel's log, and {else}",
    errno.ESTALE: "{file} was on a disk that is no longer mounted; mount it again, or {else}",
}
_OTHERS = {
    errno.EMFILE: "This process may open no more files: raise its limit (ulimit -n).",
    errno.ENFILE: "The machine may open no more files: raise fs.file-max.",
    errno.ENOMEM: "The machine has no memory left for this.",
    errno.EAGAIN: "This user may start no more processes: raise the limit (ulimit -u).",
    errno.EADDRINUSE: "The port is taken by another process: choose another one, or stop that process.",
    errno.ENOSPC: "The disk is full: free some space.",
}


def file_failure(error: OSError, elsewhere: str = "name another place", *, exit_code: int = 1) -> CommandFailed:
    """Return *error* as a failure of the command.
    *elsewhere* ends the sentence and names the way to choose another place.
    """
    file = error.filename.decode("utf-8", "replace") if isinstance(error.filename, bytes) else error.filename
    if file is not None and error.errno in _FILES:
        sentence = _FILES[error.errno].format_map({"file": file, "else": elsewhere})
        return CommandFailed("The file cannot be used", f"{sentence}.", exit_code=exit_code)
    if error.errno in _OTHERS:
        return CommandFailed("The operating system refuses", _OTHERS[error.errno], exit_code=exit_code)
    told = error.strerror or str(error) or type(error).__name__
    where = f" ({file})" if file is not None else ""
    return CommandFailed("The operating system refuses", f"{told}{where}.", exit_code=exit_code)


@contextmanager
def files_of(option: str) -> Iterator[None]:
    """Turn file errors of the block into wrong usage (exit 2) that names *option* as the remedy."""
    try:
        yield
    except OSError as error:
        raise file_failure(error, f"choose another {option}", exit_code=2) from error
