"""Structured outputs: constraints become grammars, grammars become masks over the vocabulary."""
