"""What keeps a lake bounded: compaction, rollups, lookups in a large index.

    make bench CASE="lifecycle --quick"                small inputs, to check in a minute that it runs
    make bench CASE="lifecycle --only compaction"      one part; each part is a file of this folder

It prints one JSON line per figure.
"""
