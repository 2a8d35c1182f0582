"""Topics over HTTP: declared, altered, described, listed, placed, deleted."""
