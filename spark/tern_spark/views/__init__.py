"""Views of the cluster as tables, `option("view", "lag")`: audits are plain SQL."""
