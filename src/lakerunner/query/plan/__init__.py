"""From leaves to segments: the catalog of live segments, the planner, and rules that prune."""
