"""Plain text logs to records: split, recognise, join continuation lines."""
