"""Frontends side by side: each peer is started with one function, in front of the same mock engine."""
