"""The language of row filters: `service_name = "cart" and severity_number >= 17`."""
