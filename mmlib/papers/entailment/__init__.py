"""Paper 02: entailed negatives, found by a classifier and revised (2022)."""
