"""What a parser makes of the text that comes next, said before it comes: such text need not go through the parser."""

from __future__ import annotations

from types import FunctionType
from typing import Literal, NamedTuple

from fastfront._speedups.passage import Triggers

Kind = Literal["content", "reasoning", "arguments", "nothing"]
_CONTROLS = tuple(map(chr, range(32)))

IN_STRING = Triggers('"', "\\", *_CONTROLS)
"""What may end a JSON string, or is not written as it stands in one."""
PYTHON_STRING = Triggers("'", '"', "\\", "{", "}", *_CONTROLS)
"""The same of a Python string."""
BETWEEN_VALUES = Triggers('"', "{", "}", "[", "]")
"""What tells where a JSON array or object ends, outside of its strings."""
AFTER_SPACE = Triggers(spaces=True)
"""White space that may turn out to be the end of something."""


class Stretch(NamedTuple):
    """Pieces of text without `triggers` are deltas of this kind as they stand, each piece one; "nothing": they are dropped.

    The parser is the same whether or not it is fed them. `call` is the index of the one that arguments belong to.
    """

    kind: Kind
    triggers: tuple[Triggers, ...] = ()
    call: int = -1


class Stretching:
    """A parser that may tell of stretches.

    What a class says of its stretches is not taken to hold for subclasses with methods of their own: these say it again in a
    `_stretch` of theirs, or are fed everything.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own = vars(cls)
        if "_stretch" not in own and any(isinstance(value, FunctionType | property) for value in own.values()):
            cls._stretch = Stretching._stretch  # type: ignore[method-assign]

    def stretch(self) -> Stretch | None:
        """How the text goes on that comes next; None: the parser must see it."""
        return self._stretch()

    def _stretch(self) -> Stretch | None:
        """To be overridden: may take it that nothing is withheld for an unfinished marker."""
        return None
