"""The stage `delete`: rewrites segments without the rows that somebody asked to delete."""
