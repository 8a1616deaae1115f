ENGINE_NAMES: tuple[str, ...]
LANE_NAMES: tuple[str, ...]
FAMILIES: dict[str, tuple[str, ...]]
MOST_BOUNDS: int
