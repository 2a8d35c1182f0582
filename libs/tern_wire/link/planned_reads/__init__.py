"""Link requests for reads that are planned before they begin: the plan, and its lease."""
