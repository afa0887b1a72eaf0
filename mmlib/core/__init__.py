"""What every paper builds on: records, errors, training, ranking, evidence, figures."""
