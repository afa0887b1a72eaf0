"""How paper 03 is run: its systems and budgets, batches, one training, the jobs of a record."""
