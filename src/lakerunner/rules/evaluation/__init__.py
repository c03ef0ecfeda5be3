"""What recording and alerting rules mean: pure functions from vectors to samples and the state of alerts."""
