"""Benches: what TernMQ does on this machine, beside what the machine does at best. `python -m loadtest.bench mesh`."""
