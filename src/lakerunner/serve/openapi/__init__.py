"""The OpenAPI document: what every route takes and answers, from one table per dialect."""
