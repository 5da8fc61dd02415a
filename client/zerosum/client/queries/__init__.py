"""Questions about tables: domains, predicates, queries, and their encoding as integer vectors."""
