"""How things arrive: object-created events from queues, a webhook or a folder become ledger rows, once each."""
