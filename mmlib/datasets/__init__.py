"""Real data sets: readers, checks, downloads, and the record types that they share."""
