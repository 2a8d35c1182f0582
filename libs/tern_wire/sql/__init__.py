"""SQL92 filters: text, tree and evaluation."""
