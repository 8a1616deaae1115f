from enum import IntEnum

class ErrorCode(IntEnum):
    ERROR_INTERNAL = 0
    ERROR_VALIDATION = 1
    ERROR_PAUSED = 2
    ERROR_ENGINE_DEAD = 3
