"""Single messages over HTTP: found by key or id, traced."""
