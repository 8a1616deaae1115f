"""How the engine core reaches its workers."""
