"""Constraints of a client's making: work and memory grow with their size, and what is wrong is told in few words."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from fastfront.openai.constraints.errors import BadConstraint
from fastfront.openai.constraints.grammar import check_ebnf, lark_as_ebnf
from fastfront.openai.constraints.json_schema import check_json_schema
from fastfront.openai.constraints.structural_tag import check_structural_tag
from tests.unit.tools.test_withholding import steps


def chain(n: int) -> dict[str, Any]:
    """References to references."""
    return {"$defs": {f"d{k}": {"$ref": f"#/$defs/d{k + 1}"} for k in range(n)} | {f"d{n}": {}}, "$ref": "#/$defs/d0"}


def anchored(n: int) -> dict[str, Any]:
    return {"$defs": {f"d{k}": {"$ref": "#z"} for k in range(n)} | {"e": {"$anchor": "z"}}}


@pytest.mark.parametrize("schema", [chain, anchored])
def test_references_are_followed_once(schema: Callable[[int], dict[str, Any]]) -> None:
    few, many = (steps(partial(check_json_schema, schema(n))) for n in (50, 200))
    assert many < 5 * few


def test_a_long_name_is_not_in_every_path_below_it() -> None:
    schema = {"properties": {"K" * 10_000: {"properties": {"a": {"type": "guess"}}}}}
    with pytest.raises(BadConstraint) as caught:
        check_json_schema(schema)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("schema", [
    {"anyOf": [{}, {"$ref": "#/anyOf/0000000009"}]}, {"anyOf": [{}, {"$ref": "#/anyOf/" + "0" * 9 + "9" * 5000}]},
    {"$ref": "#/" + "x" * 5000}, {"$ref": "#" + "x" * 5000}, {"$ref": "y" * 5000}, {"minLength": 10**4000, "maxLength": 5},
    {"$ref": "#"},
])  # fmt: skip
def test_bad_schemas_are_told_briefly(schema: dict[str, Any]) -> None:
    with pytest.raises(BadConstraint) as caught:
        check_json_schema(schema)
    assert len(str(caught.value)) < 300


def test_references_that_are_met_again() -> None:
    check_json_schema({"$defs": {"a": {"properties": {"b": {"$ref": "#/$defs/a"}}}}, "anyOf": [{"$ref": "#/$defs/a"}] * 3})
    with pytest.raises(BadConstraint, match="refers to itself"):
        check_json_schema({"$defs": {"ok": {}, "a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/ok"})


def tag(begin: str, triggers: list[str]) -> dict[str, Any]:
    return {"structures": [{"begin": begin, "schema": {}, "end": ""}], "triggers": triggers}


def test_triggers() -> None:
    check_structural_tag(tag("<f>", ["x", "<f"]))
    check_structural_tag(tag("<f", ["<f", "<f>>>"]))
    for begin, triggers in (("<g>", ["<f"]), ("<", ["<f"])):
        with pytest.raises(BadConstraint, match="no trigger begins"):
            check_structural_tag(tag(begin, triggers))


# Each of these would take a pattern that looks back hours.
@pytest.mark.parametrize(
    ("check", "grammar"),
    [
        (check_ebnf, 'root ::= "a" {' + " " * 500_000), (check_ebnf, 'root ::= "a" {1,' + " " * 500_000),
        (lark_as_ebnf, "s: " + "a[" * 250_000), (lark_as_ebnf, "s: a" + "{" + " " * 500_000),
    ],
)  # fmt: skip
def test_grammars_are_read_once(check: Callable[[str], object], grammar: str) -> None:
    with pytest.raises(BadConstraint):
        check(grammar)


@pytest.mark.parametrize("times", ["{2}", "{ 2 }", "{2,}", "{ 2 , 3 }", "{,3}", "{ , }"])
def test_counted_repetitions(times: str) -> None:
    check_ebnf(f'root ::= "a" {times}')


def test_lark_rules_with_arguments_are_known() -> None:
    assert lark_as_ebnf('start: "a"\nx[y] : "b"') is None
