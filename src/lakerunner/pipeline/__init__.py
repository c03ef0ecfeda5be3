"""From raw objects to segments, and from segments to better ones: one boxer and one worker loop for every stage."""
