"""Hypothesis judges no test by its speed: a machine may be slow and busy."""

from hypothesis import HealthCheck, settings

settings.register_profile("ternmq", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ternmq")
