"""Masking graphs: neighbours, parameters and bounds on their failures."""
