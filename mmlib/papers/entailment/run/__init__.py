"""What is compared, how each is trained, and the jobs of a record."""
