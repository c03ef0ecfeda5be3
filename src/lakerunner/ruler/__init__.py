"""The ruler: evaluates groups of recording and alerting rules, writes what they make, and sends alerts."""
