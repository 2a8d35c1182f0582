"""Consumer groups over HTTP: declared, altered, described, listed, deleted."""
