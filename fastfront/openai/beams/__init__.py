"""Beam search, in the frontend: an engine is asked for one token after each beam, again and again."""
