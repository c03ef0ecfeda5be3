"""The rollup stage: windows of raw samples become segments of coarser tiers."""
