ENGINE_NAMES: tuple[str, ...]
LANE_NAMES: tuple[str, ...]
