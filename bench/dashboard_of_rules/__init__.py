"""A dashboard of 20 panels over a day of the demo shop, from raw rows and from materialization rules.

The lake is what `serve --demo` has after a day with rules: 24 hours of logs at the demo's own rate (200 lines a second,
17 million; one hour of them, 24 times), rules evaluated by the code that ingest runs, segments as compaction leaves
them, tiers made by the rollup stage for all hours but the last, whose samples come from items of five seconds.

`query-worker` and `query-api` run as processes. Every panel is asked over HTTP with `rewrite=1` and `rewrite=0`; both
answers must be equal before they are timed. Figures are CPU of all processes, PostgreSQL included, and wall time.
Cached answers are bypassed. Shadow checks are switched off: one in a hundred answers is computed again from raw rows
while others are timed, which adds a hundredth of raw rows on average, and ten times that to the turn that it hits.
With `--cold N` panels are also asked after a restart with empty caches. `--keep DIR` loads once; `--hours N` at a time,
for those who cannot load a day in one go.
"""
