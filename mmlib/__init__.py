"""Image-text learning, paper by paper: the code that the numbered notebooks show and use."""

__version__ = "0.1.0"
