"""Parts of answers that several dialects share: JSON, numbers, compression."""
