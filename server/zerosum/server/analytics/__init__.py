"""Queries of a federation: noise that meets an epsilon, budgets of an analyst, answers."""
