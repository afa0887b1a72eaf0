"""Notebook 00: no paper's, but four claims of our own, to show how claims are judged."""
