"""Infer from models and updates who was trained on, and what the data are like."""
