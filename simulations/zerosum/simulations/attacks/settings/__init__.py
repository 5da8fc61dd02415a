"""Settings that attackers see: rounds, private sums, a malicious server, records."""
