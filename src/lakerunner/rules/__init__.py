"""Rules: the file format and what its rules mean, before anything is stored or evaluated."""
