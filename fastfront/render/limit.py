"""A time limit for templates that come with requests.

A template cannot be interrupted from outside, so its loops and macros are given a look at the clock.
"""

from __future__ import annotations

import time

import jinja2
from jinja2 import nodes
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

DEADLINE = "_fastfront_deadline"  # of the render, among the names the template is given
_FILTER = "_fastfront_clock"


class RenderTimeout(Exception):
    """The render has taken longer than it may."""


@jinja2.pass_context
def _look_at_clock(context: Context, value: str) -> str:
    if time.monotonic() > context.parent[DEADLINE]:  # what a template sets itself is not in `parent`
        raise RenderTimeout
    return value


def limit(environment: ImmutableSandboxedEnvironment, ast: nodes.Template) -> None:
    """Let every turn of a loop and every call of a macro look at the clock."""
    environment.filters[_FILTER] = _look_at_clock
    bodies = [*(node.body for node in ast.find_all(nodes.For)), *(node.body for node in ast.find_all(nodes.Macro))]
    for body in bodies:
        look = nodes.Filter(nodes.Const(""), _FILTER, [], [], None, None)
        body.insert(0, nodes.ExprStmt(look))
    ast.set_environment(environment)
