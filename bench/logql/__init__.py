"""LogQL over a served lake, against Loki with the same log records.

    make bench CASE="logql --quick"             100,000 records, to check in two minutes that it runs
    make bench CASE="logql --keep DIR"          a million records; a second run reuses the loaded data
    make bench CASE="logql --keep DIR --only needle --rounds 9"

It needs `loki` in the folder LAKERUNNER_TEST_PEERS or on PATH. Where `victoria-logs` is found too, it has the same
records and is asked the same questions in its own language, for its times alone.
"""
