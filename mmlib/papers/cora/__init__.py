"""Paper 03, CORA: captions as scene graphs, matched to images (CVPR 2024)."""
