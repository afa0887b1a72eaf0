"""One room a paper, and one for notebook 00: data, model, experiment, figures; all apart."""
