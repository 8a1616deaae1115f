"""Finding out what a chat template prints around the texts of messages, and what it asks of them.

Most templates look at the roles of messages and at little of their texts: whether one holds `</think>`, say. `Flow` runs a
template with stand-ins for the texts (`Text`), which note what the template asks of them and answer as most texts would; whatever
else it does with one ends the run (`NotFixed`). What is printed is the same then for all chats of these roles whose texts answer
alike.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, NoReturn

import jinja2

from fastfront._speedups.plain_chat import Form, Guards
from fastfront.render.jinja import chat_environment

ROLES = {"u": "user", "a": "assistant", "s": "system"}
# Tests whose function says of a stand-in what it says of a text, or asks `==`.
_TESTS = frozenset({
    "defined", "undefined", "none", "mapping", "number", "integer", "float", "boolean", "callable", "true", "false", "==", "!=",
    "eq", "equalto", "ne",
})  # fmt: skip
_TRUE_OF_TEXT = frozenset({"string", "sequence", "iterable"})
_DAY = frozenset("aAbBdejmuwUVWyYCgGxDF")  # strftime's letters that change with the day at most


class NotFixed(BaseException):
    """What is printed may depend on a text in a way that is not known. No Exception: templates' filters catch those."""


class Seen:
    """What one run of a template has asked of the texts, and whether it has asked for the day."""

    def __init__(self) -> None:
        self.inside: set[str] = set()
        self.starts: set[str] = set()
        self.ends: set[str] = set()
        self.stripped = False
        self.filled = False
        self.dated = False

    def guards(self) -> Guards:
        """What texts must be for it to be answered alike."""
        inside, starts, ends = (tuple(sorted(found)) for found in (self.inside, self.starts, self.ends))
        return Guards(inside, starts, ends, self.stripped, self.filled)

    def strftime_now(self, form: object) -> str:
        """The template's function, if what it gives holds for a day."""
        letters = form.split("%")[1:] if isinstance(form, str) and "%%" not in form else [""]
        if not all(letter and letter.lstrip("-")[:1] in _DAY for letter in letters):
            raise NotFixed
        self.dated = True
        assert isinstance(form, str)
        return datetime.now().strftime(form)


def _refused(*_args: object, **_kwargs: object) -> NoReturn:
    raise NotFixed


class Text:
    """Stands for the text of a message, or for one that is put together of such (places of messages) and of known ones.

    It is no str: what does not know it fails. What begins with an underscore is out of a template's reach.
    """

    __slots__ = ("_parts", "_seen")

    def __init__(self, seen: Seen, parts: Iterable[str | int]) -> None:
        self._seen = seen
        self._parts = tuple(parts)

    def _single(self, *known: object) -> None:
        """Raises NotFixed unless this is one message's text and the others are texts with something in them."""
        if len(self._parts) != 1 or not all(isinstance(text, str) and text for text in known):
            raise NotFixed

    def __add__(self, other: object) -> Text:
        return self._with((self, other)) if isinstance(other, str | Text) else _refused()

    def __radd__(self, other: object) -> Text:
        return self._with((other, self)) if isinstance(other, str) else _refused()

    def _with(self, items: tuple[object, object]) -> Text:
        joined = _joined(items)
        assert isinstance(joined, Text)
        return joined

    def __bool__(self) -> bool:
        if not any(isinstance(part, str) for part in self._parts):
            self._seen.filled = True
        return True

    def __contains__(self, item: object) -> bool:
        self._single(item)
        self._seen.inside.add(str(item))
        return False

    def __eq__(self, other: object) -> bool:
        if other is None or isinstance(other, bool | int | float):
            return False
        return not self if isinstance(other, str) and not other else _refused()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def startswith(self, *given: object) -> bool:
        return self._edge(self._seen.starts, given)

    def endswith(self, *given: object) -> bool:
        return self._edge(self._seen.ends, given)

    def _edge(self, found: set[str], given: tuple[object, ...]) -> bool:
        texts = given[0] if len(given) == 1 and isinstance(given[0], tuple) else given
        if not texts or (texts is given and len(given) > 1):
            raise NotFixed
        self._single(*texts)
        found.update(map(str, texts))
        return False

    def strip(self, *given: object) -> Text:
        return self._stripped(given, left=True, right=True)

    def lstrip(self, *given: object) -> Text:
        return self._stripped(given, left=True, right=False)

    def rstrip(self, *given: object) -> Text:
        return self._stripped(given, left=False, right=True)

    def _stripped(self, given: tuple[object, ...], left: bool, right: bool) -> Text:
        chars = given[0] if given else None
        if len(given) > 1 or not (chars is None or (isinstance(chars, str) and chars)):
            raise NotFixed
        parts = list(self._parts)
        for wanted, place, cut in ((left, 0, str.lstrip), (right, -1, str.rstrip)):
            while wanted and isinstance(part := parts[place], str):
                parts[place] = cut(part, chars)
                if parts[place]:
                    break
                del parts[place]  # there is a message's text left: known ones are not next to each other
            if wanted and not isinstance(parts[place], str):
                self._ends_well(chars, left=place == 0, alone=len(parts) == 1)
        return Text(self._seen, parts)

    def _ends_well(self, chars: str | None, left: bool, alone: bool) -> None:
        """Texts that pass do not begin or end with what is taken away, and are there where something stands behind them."""
        if not alone:
            self._seen.filled = True
        if chars is None:
            self._seen.stripped = True
        else:
            (self._seen.starts if left else self._seen.ends).update(chars)

    def removeprefix(self, known: object) -> Text:
        self.startswith(known)
        return self

    def removesuffix(self, known: object) -> Text:
        self.endswith(known)
        return self

    def _lacks(self, known: object) -> None:
        if known in self:
            raise NotFixed

    def split(self, known: object = None, maxsplit: object = -1) -> list[Text]:
        self._lacks(known)
        return [self]

    def rsplit(self, known: object = None, maxsplit: object = -1) -> list[Text]:
        return self.split(known)

    def partition(self, known: object) -> tuple[Text, str, str]:
        self._lacks(known)
        return self, "", ""

    def rpartition(self, known: object) -> tuple[str, str, Text]:
        self._lacks(known)
        return "", "", self

    def replace(self, known: object, other: object) -> Text:
        self._lacks(known)
        return self if isinstance(other, str) else _refused()

    def find(self, known: object) -> int:
        self._lacks(known)
        return -1

    rfind = find

    def count(self, known: object) -> int:
        self._lacks(known)
        return 0

    __getattr__ = __getitem__ = __iter__ = __len__ = __str__ = __repr__ = __format__ = __hash__ = __call__ = _refused
    __lt__ = __le__ = __gt__ = __ge__ = __int__ = __float__ = __index__ = __complex__ = __bytes__ = __trunc__ = _refused
    __mul__ = __rmul__ = __mod__ = __rmod__ = __sub__ = __rsub__ = __truediv__ = __rtruediv__ = __floordiv__ = _refused
    __rfloordiv__ = __pow__ = __rpow__ = __neg__ = __pos__ = __invert__ = __abs__ = __reversed__ = _refused
    __matmul__ = __rmatmul__ = _refused
    __divmod__ = __rdivmod__ = __round__ = __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _refused


class _Message(dict[str, Any]):
    """A message, or a part of one, whose fields come in no known order."""

    __iter__ = keys = values = items = copy = __reversed__ = __or__ = __ror__ = __repr__ = _refused


def _shown(value: object) -> object:
    """What takes the place of `str` where templates print."""
    return value if isinstance(value, Text) else str(value)


def _joined(items: Iterable[object]) -> str | Text:
    """What takes the place of joining: a text if all are, else a stand-in."""
    parts: list[str | int] = []
    seen: Seen | None = None
    for item in items:
        if isinstance(item, Text):
            seen = item._seen
        for part in item._parts if isinstance(item, Text) else (str(item),):
            if parts and isinstance(part, str) and isinstance(last := parts[-1], str):
                parts[-1] = last + part
            elif part != "":
                parts.append(part)
    return "".join(map(str, parts)) if seen is None else Text(seen, parts)


def _guarded(name: str, function: Callable[..., Any], known: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
    """A filter or test that ends the run when it is given a stand-in, unless it is among those that are `known` to be right."""

    @functools.wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        if any(isinstance(value, Text) for value in (*args, *kwargs.values())):
            return known[name](*args, **kwargs) if name in known else _refused()
        return function(*args, **kwargs)

    return guarded


@jinja2.pass_context  # not while the template is compiled
def _never(*_args: object, **_kwargs: object) -> NoReturn:
    raise NotFixed


def _trimmed(value: object, chars: str | None = None) -> object:
    return value.strip(*([] if chars is None else [chars])) if isinstance(value, Text) else _refused()


def _itself(value: object) -> object:
    return value if isinstance(value, Text) else _refused()


def _true(_value: object) -> bool:
    return True


class Flow:
    """One template, compiled to be run with stand-ins. Any thread; nothing changes in it."""

    def __init__(self, source: str, constants: Mapping[str, object], as_parts: bool) -> None:
        """`constants` as for ChatTemplate; `as_parts`: it reads contents that are lists of parts. Raises jinja2.TemplateError."""
        environment = chat_environment()
        filters: dict[str, Any] = environment.filters
        tests: dict[str, Any] = environment.tests
        known: dict[str, Any] = {"trim": _trimmed, "string": _itself, "default": filters["default"], "d": filters["d"]}
        environment.filters = {name: _guarded(name, function, known) for name, function in filters.items()}
        environment.filters["random"] = _never
        known = {name: function for name, function in tests.items() if name in _TESTS} | dict.fromkeys(_TRUE_OF_TEXT, _true)
        environment.tests = {name: _guarded(name, function, known) for name, function in tests.items()}
        environment.concat = _joined  # type: ignore[method-assign, assignment]
        template = environment.from_string(source)
        self._root: Callable[[jinja2.runtime.Context], Iterator[object]] = template.root_render_func
        # What compiled templates print with and `~` are names of their module.
        self._root.__globals__.update(str=_shown, str_join=_joined)
        self._context: Callable[[dict[str, Any], bool], jinja2.runtime.Context] = template.new_context
        self._constants = {**template.globals, **constants, "tools": None, "documents": None, "lipsum": _refused}
        self._as_parts = as_parts

    def form(self, roles: str, add_generation_prompt: bool) -> Form | None:
        """What is printed around the texts of a chat of these roles; None if that is not known, or the template refuses them."""
        begun = datetime.now()
        seen = Seen()
        messages = [_Message(role=ROLES[role], content=self.content(Text(seen, [k]))) for k, role in enumerate(roles)]
        own = {"messages": messages, "add_generation_prompt": add_generation_prompt, "strftime_now": seen.strftime_now}
        if self._as_parts and "s" in roles:
            seen.filled = True  # a system message without text has no part
        try:
            printed = _joined(self._root(self._context({**self._constants, **own}, True)))
        except (NotFixed, Exception):  # whatever the template has against these roles it says when it is run
            return None
        if not isinstance(printed, Text):
            return None
        midnight = datetime.combine(begun.date() + timedelta(days=1), datetime.min.time())
        until = int(midnight.timestamp()) if seen.dated else 0
        return Form(printed._parts, seen.guards(), int(begun.timestamp()), until)

    def content(self, text: object) -> object:
        """A message's content as the template reads it."""
        return [_Message(type="text", text=text)] if self._as_parts else text
