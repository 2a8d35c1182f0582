"""Dead letters over HTTP: browsed, dropped, delivered again by a task."""
