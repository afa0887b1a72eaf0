"""Paper 01: Cross-Modal Coherence for Text-to-Image Retrieval (Alikhani et al., AAAI 2022)."""
