"""PromQL as of Prometheus 3.14: text to tree, tree to values, over any source of series."""
