"""Planned reads over HTTP: plans of many topics."""
