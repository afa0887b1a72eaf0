"""Frozen networks and texts as arrays: backbones, regions, text encoders."""
