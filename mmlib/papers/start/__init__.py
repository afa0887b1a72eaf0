"""Notebook 00: no paper's, but five claims of our own, to show how claims are judged."""
