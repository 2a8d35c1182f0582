"""Dead letters over HTTP: browsed, purged, and redriven by a task."""
