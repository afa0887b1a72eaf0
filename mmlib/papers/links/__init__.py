"""Paper 04: links between the images and sentences of a document (EMNLP 2019)."""
