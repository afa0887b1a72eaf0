"""One room a paper: its data, model, experiment and figures; no room knows another."""
