"""One role of a mesh runs the code of another checkout, as in the middle of a rolling upgrade: `make test-mixed BEFORE=...`.

Python imports this module in every process that has its folder on PYTHONPATH, before anything else. Where the process is of the role
TERNMQ_MIXED_ROLE (`broker`, `proxy`, ...), the packages of the checkout TERNMQ_MIXED_TREE come first. Both must have the same dependencies.
Reference: https://docs.python.org/3/library/site.html#module-sitecustomize
"""

import os
import sys
from pathlib import Path

_TREE, _ROLE = os.environ.get("TERNMQ_MIXED_TREE", ""), os.environ.get("TERNMQ_MIXED_ROLE", "")

if _TREE and f"tern_{_ROLE}" in sys.orig_argv:
    _root = Path(_TREE)
    _sources = [_root / "libs", *sorted(each for each in (_root / "services").iterdir() if each.is_dir())]
    sys.path[:0] = [str(source) for source in _sources]
    # Into the log of the process, so that a reader of it knows.
    print(f"This {_ROLE} runs the code of {_TREE}.", file=sys.stderr)
