"""Parts of the mock engine, see `engine.mock`."""
