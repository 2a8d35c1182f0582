"""Producer groups over HTTP: declared, described, listed, deleted."""
