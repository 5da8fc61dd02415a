"""Attacks on what is published: answers, small tables, released records."""
