"""PromQL over the whole lake, served as users run it, against Prometheus and VictoriaMetrics on the same samples.

    make bench CASE="promql --quick"            small sets: whether it runs at all, in a minute
    make bench CASE="promql --keep DIR"         the sizes of the published figures; a second run finds them loaded
    make bench CASE="promql --keep DIR --only 'long sum by rate' --rounds 9"

Needs `prometheus` on PATH or in the folder LAKERUNNER_TEST_PEERS; `victoria-metrics` is a further column where found.
"""
