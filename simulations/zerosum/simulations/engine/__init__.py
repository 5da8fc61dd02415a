"""The simulation engine: workers, cohorts, simulated clients and faults."""
