"""Accounting: events, ledger, epsilons, calibration and audit."""
