"""Queries of a federation that is played on one machine: its tables, its clients, its folder."""
