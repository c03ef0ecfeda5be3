"""PromQL over a served lake, against Prometheus and VictoriaMetrics with the same samples.

    make bench CASE="promql --quick"            small data sets, to check in a minute that it runs
    make bench CASE="promql --keep DIR"         the sizes of the published figures; a second run reuses the loaded data
    make bench CASE="promql --keep DIR --only 'long sum by rate' --rounds 9"

It needs `prometheus` in the folder LAKERUNNER_TEST_PEERS or on PATH. `victoria-metrics`, if found, is measured too.
"""
