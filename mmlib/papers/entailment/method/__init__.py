"""What the paper adds: judge, revision of a retriever, retrievers, and how they are measured."""
