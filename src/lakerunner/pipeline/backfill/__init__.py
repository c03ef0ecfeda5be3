"""The stage `backfill`: evaluates rules over stored segments that were ingested before the rules, or without them."""
