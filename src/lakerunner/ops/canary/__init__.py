"""The canary: known rows of all signals, written as a collector writes them and checked as a user queries them."""
