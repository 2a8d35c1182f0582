"""Comparison of replicas, decided purely: digests, inspections, verdicts."""
