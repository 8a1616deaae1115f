"""The Jinja environment of chat templates: compiled as Hugging Face transformers compiles them.

Templates come from model folders and are not trusted: the sandbox is immutable, and what a template is given are plain
strings, numbers, lists and dicts.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from fastfront.render.shown_tools import ShownTool


class GenerationTag(Extension):
    """`{% generation %}...{% endgeneration %}`: marks assistant text for training; when serving it is its content."""

    tags = {"generation"}  # noqa: RUF012 - the base class declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_content"), [], [], body).set_lineno(lineno)

    def _content(self, caller: Macro) -> str:
        return caller()


_DICT_NAMES = frozenset(dir(dict))
_STR_METHODS = frozenset(name for name in dir(str) if not name.startswith("_") and not name.startswith("format"))


class _TemplateDict:
    """`dict` inside templates, without the type's other attributes."""

    def __call__(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict(*args, **kwargs)

    def fromkeys(self, *args: Any, **kwargs: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args, **kwargs)


class _TemplateNamespace(Namespace):
    """`namespace()` inside templates; names starting with an underscore are refused."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # so that `namespace(self=...)` works
        self, values = args[0], dict(*args[1:], **kwargs)
        for name in values:
            _check_name(name)
        Namespace.__init__(self, values)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"A chat template cannot store the underscore-prefixed name {name!r}.")


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.exceptions.TemplateError(message)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    if type(value) is ShownTool:
        return value.as_json(ensure_ascii, indent, separators, sort_keys)
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


class _ChatEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox, with a short way to what templates ask for most."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        """What the sandbox gives: for a dict's keys without an exception, for methods of texts without checks."""
        kind = type(obj)
        if (kind is dict or kind is ShownTool) and attribute not in _DICT_NAMES:
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        if kind is str and attribute in _STR_METHODS:
            return getattr(obj, attribute)
        return super().getattr(obj, attribute)


def chat_environment() -> ImmutableSandboxedEnvironment:
    """A new environment; one is enough for all templates, none of its parts is changed after this."""
    environment = _ChatEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTag, loopcontrols]
    )
    names: dict[str, Callable[..., Any]] = {
        "raise_exception": _raise_exception,
        "strftime_now": _strftime_now,
        "dict": _TemplateDict(),
        "namespace": _TemplateNamespace,
    }
    environment.filters["tojson"] = _tojson
    environment.globals.update(names)
    return environment
