"""Structured outputs: what reaches the engine, and what is refused before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fastfront._speedups.msgpack import packb, unpackb
from fastfront.config import StructuredOptions
from fastfront.errors import ApiError
from fastfront.openai.constraints.backends import beyond_xgrammar
from fastfront.openai.constraints.errors import BadConstraint
from fastfront.openai.constraints.grammar import check_ebnf, choice_grammar, is_lark, lark_as_ebnf
from fastfront.openai.constraints.json_schema import check_json_schema
from fastfront.openai.constraints.regex import check_regex
from fastfront.openai.responses.prepare import prepare_response
from fastfront.openai.serving import Serving, build_serving
from fastfront.openai.structured import structured_map
from fastfront.streams.prepared import PreparedCall
from tests.unit.support import JSON_TYPE, chat, completion, config_of, refusal

USUAL = StructuredOptions()
ANSWER = {"type": "object", "properties": {"n": {"type": "integer"}}}


@pytest.fixture(scope="module")
def serving(tiny_folder: Path) -> Serving:
    return build_serving(config_of(tiny_folder))


def sent(serving: Serving, fields: dict[str, Any]) -> dict[str, Any]:
    found = chat(serving, fields).sampling["structured_outputs"]
    assert isinstance(found, dict)
    assert completion(serving, fields).sampling["structured_outputs"] == found
    assert unpackb(packb(found)) == found
    return found


FULL = {
    "json": None, "regex": None, "choice": None, "grammar": None, "json_object": None, "disable_any_whitespace": False,
    "disable_additional_properties": False, "whitespace_pattern": None, "structural_tag": None, "_backend": "xgrammar",
    "_backend_was_auto": True,
}  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "differs"),
    [
        ({"response_format": {"type": "json_object"}}, {"json_object": True}),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": ANSWER, "strict": True}}},
            {"json": ANSWER},
        ),
        ({"structured_outputs": {"json": ANSWER}}, {"json": ANSWER}),
        ({"structured_outputs": {"json": json.dumps(ANSWER)}}, {"json": json.dumps(ANSWER)}),
        ({"structured_outputs": {"json_object": True}}, {"json_object": True}),
        ({"structured_outputs": {"regex": "[a-z]+"}}, {"regex": "[a-z]+"}),
        ({"structured_outputs": {"choice": ["yes", 'n"o']}}, {"grammar": 'root ::= "yes" | "n\\"o"'}),
        ({"structured_outputs": {"grammar": 'root ::= "a"'}}, {"grammar": 'root ::= "a"'}),
        ({"structured_outputs": {"grammar": 'start: "a" b\nb: "c"'}},
         {"grammar": 'root ::= start\nstart ::= "a" b\nb ::= "c"'}),
        ({"structured_outputs": {"grammar": 'start: /a+/'}}, {"grammar": 'start: /a+/', "_backend": "guidance"}),
        ({"structured_outputs": {"json": {"type": "integer", "multipleOf": 2}}},
         {"json": {"type": "integer", "multipleOf": 2}, "_backend": "guidance"}),
        (
            {"structured_outputs": {"regex": "a", "whitespace_pattern": " ", "disable_any_whitespace": True}},
            {"regex": "a", "whitespace_pattern": " ", "disable_any_whitespace": True},
        ),
        # The response format replaces a kind that is the same, not the options.
        (
            {
                "response_format": {"type": "json_object"},
                "structured_outputs": {"json_object": True, "disable_any_whitespace": True},
            },
            {"json_object": True, "disable_any_whitespace": True},
        ),
    ],
)  # fmt: skip
def test_the_map_for_the_engine(serving: Serving, fields: dict[str, Any], differs: dict[str, Any]) -> None:
    found = sent(serving, fields)
    assert found == FULL | differs
    assert list(found) == list(FULL)


def test_structural_tags_travel_as_text(serving: Serving) -> None:
    tag = {"type": "structural_tag", "format": {"type": "const_string", "value": "é"}}
    found = sent(serving, {"response_format": tag})
    assert json.loads(found["structural_tag"]) == tag
    legacy = {
        "type": "structural_tag", "triggers": ["<f"],
        "structures": [{"begin": "<f>", "schema": ANSWER, "end": "</f>"}],
    }  # fmt: skip
    assert json.loads(sent(serving, {"response_format": legacy})["structural_tag"]) == legacy


@pytest.mark.parametrize("fields", [{}, {"response_format": None}, {"response_format": {"type": "text"}}])
def test_nothing_asked_for_is_nothing_sent(serving: Serving, fields: dict[str, Any]) -> None:
    assert "structured_outputs" not in chat(serving, fields).sampling


def test_flags_hold_for_every_request() -> None:
    found = structured_map({"regex": "a"}, StructuredOptions("guidance", disable_any_whitespace=True))
    assert (found["_backend"], found["_backend_was_auto"]) == ("guidance", False)
    assert (found["disable_any_whitespace"], found["disable_additional_properties"]) == (True, False)


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels - 1):
        schema = {"not": schema}
    return schema


def test_what_messages_to_engines_cannot_hold_travels_as_text() -> None:
    for schema in (nested(60), {"type": "integer", "maximum": 10**30}):
        found = structured_map({"json": schema}, USUAL)["json"]
        assert json.loads(found) == schema
    assert structured_map({"json": nested(20)}, USUAL)["json"] == nested(20)


TAG = {"type": "tag", "begin": "<f>", "content": {"type": "json_schema", "json_schema": {"type": "object"}}, "end": "</f>"}


def tagged(form: object) -> dict[str, object]:
    return {"type": "structural_tag", "format": form}


@pytest.mark.parametrize(
    "form",
    [
        {"type": "triggered_tags", "triggers": ["<f"], "tags": [TAG], "at_least_one": True},
        {"triggers": ["<f"], "tags": [{key: value for key, value in TAG.items() if key != "type"}]},
        {"begin": {"type": "token", "token": 5}, "content": {"json_schema": True}, "end": ["</f>", "</g>"]},
        {"type": "token_triggered_tags", "trigger_tokens": [5], "tags": [{**TAG, "begin": {"token": "x"}}]},
        {"type": "or", "elements": [{"type": "any_text"}, {"type": "star", "content": {"type": "regex", "pattern": "a"}}]},
        {"type": "dispatch", "rules": [["<f>", TAG]], "loop": False},
        {"type": "repeat", "min": 1, "max": -1, "content": {"type": "grammar", "grammar": 'root ::= "a"'}},
    ],
)
def test_structural_tags(serving: Serving, form: dict[str, object]) -> None:
    assert json.loads(sent(serving, {"response_format": tagged(form)})["structural_tag"])["format"] == form


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"structured_outputs": {"json": {"type": "nonsense"}}}, "unknown type 'nonsense'"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "nonsense"}}}}, "nonsense"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}}, "none are specified"),
    ({"structured_outputs": {"json": "{"}}, "Invalid JSON"),
    ({"structured_outputs": {"json": '{"minimum": NaN}'}}, "Invalid JSON"),
    ({"structured_outputs": {"json": "[1]"}}, "not a schema"),
    ({"structured_outputs": {"json": nested(65)}}, "nested deeper than 64"),
    ({"structured_outputs": {"regex": "(a"}}, "not closed"),
    ({"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a"}}, "multiple"),
    ({"structured_outputs": {"choice": []}}, "empty list"),
    ({"structured_outputs": {"choice": ["a", ""]}}, "empty string"),
    ({"structured_outputs": {"grammar": " \n"}}, "empty string"),
    ({"structured_outputs": {"grammar": "??"}}, "Invalid grammar"),
    ({"structured_outputs": {"grammar": 'root ::= "a" b'}}, "b is not defined"),
    ({"structured_outputs": {"json_object": False}}, "none are specified"),
    ({"structured_outputs": {"grammar": 'root ::= "a"', "regex": "a"}}, "multiple"),
    ({"structured_outputs": {"json_object": True, "regex": "a"}}, "multiple"),
    ({"structured_outputs": {"structural_tag": "{}"}}, "structural_tag"),
    ({"structured_outputs": {"structural_tag": "x"}}, "structural_tag"),
    ({"response_format": {"type": "structural_tag", "format": {"type": "nonsense"}}}, "is no format"),
    ({"response_format": {"type": "structural_tag", "format": {"type": "regex", "pattern": "("}}}, "not closed"),
    ({"response_format": tagged({"type": "triggered_tags", "triggers": [], "tags": [TAG]})}, "triggers cannot be"),
    ({"response_format": tagged({"type": "triggered_tags", "triggers": ["<g"], "tags": [TAG]})}, "no trigger begins '<f>'"),
    ({"response_format": tagged({"type": "triggered_tags", "triggers": ["<f"], "tags": []})}, "tags cannot be"),
    ({"response_format": tagged({"triggers": ["<f"], "tags": [TAG], "at_least_one": 1})}, "at_least_one"),
    ({"response_format": tagged({"type": "triggered_tags", "tags": [TAG]})}, "needs `triggers`"),
    ({"response_format": tagged({"triggers": ["<f", "<f>"], "tags": [TAG]})}, "more than one trigger"),
    ({"response_format": tagged({"trigger_tokens": [], "tags": [TAG]})}, "trigger_tokens cannot be"),
    ({"response_format": tagged({"type": "token", "token": -1})}, "token cannot be"),
    ({"response_format": tagged({"type": "repeat", "min": 3, "max": 2, "content": TAG})}, "repeat needs"),
    ({"response_format": tagged({})}, "is no format"),
    ({"response_format": tagged({**TAG, "end": []})}, "end cannot be"),
    ({"response_format": tagged({**TAG, "content": None})}, "must be an object"),
    ({"response_format": tagged({"type": "sequence", "elements": [{"type": "repeat", "min": True}]})}, "min cannot be"),
    ({"response_format": tagged({"type": "dispatch", "rules": [["a"]]})}, "rules cannot be"),
    ({"response_format": {"type": "structural_tag", "triggers": ["<f"], "structures": [{"begin": "<f", "end": ">"}]}},
     "needs `schema`"),
    ({"response_format": {"type": "structural_tag", "triggers": ["<g"], "structures": [{"begin": "<f", "end": ">"}]}},
     "no trigger"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "words"), REFUSED)
@pytest.mark.parametrize("stream", [False, True])
def test_bad_constraints_are_refused_with_the_reason(
    serving: Serving, fields: dict[str, Any], words: str, stream: bool
) -> None:
    for ask in (chat, completion):
        error = refusal(ask, serving, {**fields, "stream": stream})
        assert (error.status, error.kind) == (400, "BadRequestError")
        assert words in error.message


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"structured_outputs": {"regex": 5}}, "body.structured_outputs.regex"),
        ({"structured_outputs": {"choice": [1]}}, "body.structured_outputs.choice.0"),
        ({"structured_outputs": "json"}, "body.structured_outputs"),
    ],
)
def test_wrong_types_are_named(serving: Serving, fields: dict[str, Any], param: str) -> None:
    assert refusal(chat, serving, fields).param == param


def test_other_apis_are_checked_the_same_way(serving: Serving) -> None:
    def ask(**fields: Any) -> PreparedCall:
        return prepare_response(json.dumps({"input": "Hi", **fields}).encode(), JSON_TYPE.get, serving)

    found = ask(structured_outputs={"choice": ["a"]}).sampling["structured_outputs"]
    assert found == FULL | {"grammar": 'root ::= "a"'}
    for bad in ({"regex": 5}, {"regex": "("}, {"json": {"type": "x"}}):
        with pytest.raises(ApiError) as caught:
            ask(structured_outputs=bad)
        assert caught.value.status == 400


GOOD_REGEXES = [
    "a", "a|b|", "[a-z]{2,}", "(ab)+?", r"\d{3}-\d{4}", r"[^\]\-a]", "[]a]", "[a-]", "(?:a|b)*", "(?P<x>a)", "(?<x>a)",
    "(?i:a)", "(?i)a", r"\p{L}+", r"\u00e9\x41\u{1F600}", "^a$", "a{2}", "[{]", "}", r"\.", "é", "a**", "a?{2}",
    "x{1,1000}", r"[\b]", r"\/", "()", "[[a]",
]  # fmt: skip
BAD_REGEXES = [
    ("*", "nothing to repeat"), ("a{x}", "no number"), ("{", "nothing to repeat"), ("a{,3}", "no number"),
    ("(*a)", "nothing to repeat"), ("a|+", "nothing to repeat"),
    ("(a", "not closed"), ("a)", "unbalanced"), ("[a", "not closed"), ("a\\", "backslash"), ("[z-a]", "backwards"),
    ("a{3,2}", "more at least"), (r"(a)\1", "references"), ("(?=a)b", "look-around"), ("(?<!a)b", "look-around"),
    (r"\ba", "boundaries"), (r"\q", "unknown escape"), (r"\xg1", "hex"), (r"\u12", "hex"), (r"\u{}", "hex"), (r"\p", "property"),
    ("(?<1", "name"), ("(?P=x)", "references"), ("(?z)", "unknown kind"), ("a{200000}", "too large"),
    ("((a{1000}){1000})", "too large"), ("(" * 300 + ")" * 300, "nested deeper"), ("a" * 70_000, "at most"), ("", "empty"),
]  # fmt: skip


@pytest.mark.parametrize("pattern", GOOD_REGEXES)
def test_regexes_that_pass(pattern: str) -> None:
    check_regex(pattern)


@pytest.mark.parametrize(("pattern", "words"), BAD_REGEXES)
def test_regexes_that_do_not(pattern: str, words: str) -> None:
    with pytest.raises(BadConstraint, match=words):
        check_regex(pattern)


GOOD_SCHEMAS: list[Any] = [
    {}, True, ANSWER, {"type": ["string", "null"]}, {"enum": [1, "a", None]}, {"const": {"a": 1}},
    {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 3},
    {"type": "array", "prefixItems": [{"type": "string"}], "items": False},
    {"$defs": {"a": {"type": "object", "properties": {"next": {"$ref": "#/$defs/a"}}}}, "$ref": "#/$defs/a"},
    {"properties": {"a": {"$ref": "#"}}}, {"properties": {"a": {"$anchor": "x"}, "b": {"$ref": "#x"}}},
    {"$ref": "#/definitions/a~1b", "definitions": {"a/b": True}},
    {"type": "string", "pattern": "^[a-z]+$", "format": "uri"}, {"minimum": 1, "exclusiveMaximum": 2.5},
    {"anyOf": [{"type": "string"}, {"type": "null"}]}, {"properties": {"type": {"type": "string"}}},
    {"patternProperties": {"^a": {}}, "additionalProperties": False}, {"unknownKeyword": [1]}, {"items": [{}, {}]},
]  # fmt: skip
BAD_SCHEMAS: list[tuple[Any, str]] = [
    ({"type": "nonsense"}, "unknown type"), ({"type": []}, "not be empty"), ({"type": [5]}, "unknown type"), (5, "not a schema"),
    ({"properties": {"a": {"type": "x"}}}, "#/properties/a/type"), ({"properties": []}, "must be an object"),
    ({"items": 5}, "not a schema"), ({"anyOf": []}, "not empty"), ({"enum": []}, "not empty"), ({"required": "a"}, "strings"),
    ({"minLength": -1}, "at least 0"), ({"maxItems": "3"}, "at least 0"), ({"minItems": 3, "maxItems": 2}, "is more than"),
    ({"minimum": "1"}, "a number"), ({"minimum": 5, "maximum": 1}, "is more than"), ({"pattern": "("}, "bad regular expression"),
    ({"$ref": "#/$defs/a"}, "leads nowhere"), ({"$ref": "#/$defs/a", "$defs": {"b": {}}}, "leads nowhere"),
    ({"$ref": "http://example.com/x"}, "leads out"), ({"$ref": 5}, "string"), ({"$ref": "#"}, "refers to itself"),
    ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "refers to itself"), ({"format": 1}, "string"),
    ({"minimum": float("inf")}, "not a number"), ({"patternProperties": {"(": {}}}, "bad regular expression"),
]  # fmt: skip


@pytest.mark.parametrize("schema", GOOD_SCHEMAS)
def test_schemas_that_pass(schema: Any) -> None:
    check_json_schema(schema)


@pytest.mark.parametrize(("schema", "words"), BAD_SCHEMAS)
def test_schemas_that_do_not(schema: Any, words: str) -> None:
    with pytest.raises(BadConstraint, match=words):
        check_json_schema(schema)


def test_keywords_that_xgrammar_does_not_enforce() -> None:
    assert beyond_xgrammar({"properties": {"a": {"type": "array", "uniqueItems": True}}})
    assert beyond_xgrammar({"anyOf": [{"type": "string", "format": "made-up"}]})
    assert not beyond_xgrammar(ANSWER | {"format": "uri"})


# What vLLM 0.32 answers for them, whose own compilers are asked there.
FOR_GUIDANCE: list[Any] = [
    {"allOf": [{"type": "object"}, {"required": ["a"]}]}, {"type": "integer", "multipleOf": 3}, {"type": "array", "items": [{}]},
    {"type": "object", "minProperties": 1}, {"type": "array", "prefixItems": [{}], "minItems": 3},
    {"type": ["string", "null"], "pattern": "a", "maxLength": 3}, {"type": "string", "format": "date", "minLength": 1},
    {"type": "string", "pattern": r"\p{L}"}, {"type": "integer", "maximum": 1e20}, {"type": "integer", "minimum": 1.5},
    {"type": "number", "maximum": 5, "exclusiveMaximum": False}, {"type": "string", "pattern": "(?i)a"},
]  # fmt: skip
FOR_NOBODY: list[tuple[Any, str]] = [
    ({"type": "array", "uniqueItems": False}, "uniqueItems"), ({"type": ["array", "null"], "contains": {}}, "contains"),
    ({"allOf": [{}, {}], "properties": {"a": {"not": {}}}}, "not"), ({"type": "string", "format": "nope"}, "format 'nope'"),
    ({"type": "object", "propertyNames": {"pattern": "a"}, "properties": {}}, "propertyNames"),
    ({"type": "integer", "minimum": 1e30}, "64 bits"), ({"allOf": [{}, {"type": "string", "format": "uri-reference"}]}, "format"),
]  # fmt: skip
FOR_XGRAMMAR: list[Any] = [
    {"allOf": [{"type": "string"}]}, {"uniqueItems": True}, {"type": "object", "minProperties": 1, "properties": {"a": {}}},
    {"type": "array", "prefixItems": [{}], "minItems": 2, "items": {}}, {"not": {"type": "string"}},
    {"type": "number", "minimum": 1e30}, {"type": "object", "patternProperties": {"^a": {}}},
    {"type": "object", "propertyNames": {"maxLength": 3}},
    {"const": {"type": "string", "pattern": "(", "format": ["x"]}},
    {"default": {"type": "array", "prefixItems": [], "minItems": "x"}},
    {"enum": [{"type": "integer", "minimum": True}, {"items": [5]}]},
    {"$ref": "#/$defs/a%20b", "$defs": {"a b": {"type": "null"}}},
]  # fmt: skip


@pytest.mark.parametrize("schema", FOR_GUIDANCE)
def test_schemas_beyond_xgrammar_are_for_guidance(schema: Any) -> None:
    assert structured_map({"json": schema}, StructuredOptions())["_backend"] == "guidance"


@pytest.mark.parametrize("schema", FOR_XGRAMMAR)
def test_other_schemas_are_for_xgrammar(schema: Any) -> None:
    assert structured_map({"json": schema}, StructuredOptions())["_backend"] == "xgrammar"


@pytest.mark.parametrize(("schema", "words"), FOR_NOBODY)
def test_schemas_that_no_compiler_takes_are_refused(schema: Any, words: str) -> None:
    with pytest.raises(ApiError, match=words):
        structured_map({"json": schema}, StructuredOptions())


@pytest.mark.parametrize(
    ("pattern", "backend"), [("a+", "xgrammar"), ("a**", "guidance"), (r"\p{L}", "guidance"), ("(?i)a", "guidance")]
)
def test_the_compiler_of_an_expression(pattern: str, backend: str) -> None:
    assert structured_map({"regex": pattern}, StructuredOptions())["_backend"] == backend


GOOD_EBNF = [
    'root ::= "a"', 'root ::= a b?\na ::= [a-z]+ # words\nb ::= ("x" | "y"){2,3}', 'root ::= "a" |\n  "b"',
    'x ::= "\\"" \nroot ::= x*', 'root ::= TagDispatch(("<a>", x), stop_eos=true)\nx ::= "a"', 'root-a ::= "b"\nroot ::= root-a',
]  # fmt: skip
BAD_EBNF = [
    ("::=", "rule"), ('a ::= "b"', "no rule named root"), ("root ::=", "empty"), ('root ::= ("a"', "not closed"),
    ('root ::= "a")', "unbalanced"), ('root ::= "a', "unexpected"), ("root ::= x", "x is not defined"),
    ('root ::= * "a"', "nothing to repeat"), ('"a" root ::= "b"', "expected"), ("root ::= @", "unexpected"),
    ('root ::= (="a")', "nothing before"),
]  # fmt: skip


@pytest.mark.parametrize("grammar", GOOD_EBNF)
def test_ebnf_that_passes(grammar: str) -> None:
    assert not is_lark(grammar)
    check_ebnf(grammar)


@pytest.mark.parametrize(("grammar", "words"), BAD_EBNF)
def test_ebnf_that_does_not(grammar: str, words: str) -> None:
    with pytest.raises(BadConstraint, match=words):
        check_ebnf(grammar)


@pytest.mark.parametrize(
    ("grammar", "ebnf"),
    [
        ('start: "a"', 'root ::= start\nstart ::= "a"'),
        ("?start: a | b  // two\na: 'x'\nb: (\"y\" a)+ -> c\n", 'root ::= start\nstart ::= a | b\na ::= "x"\nb ::= ( "y" a ) +'),
        ('first: second\n  | "c"\nsecond: ["d"]', 'root ::= first\nfirst ::= second | "c"\nsecond ::= ( "d" )?'),
        ("start: /a+/", None), ('start: "a"i', None), ('start: WORD\n%import common.WORD', None), ('start: "a"~3', None),
        ('start: "a".."z"', None), ('start: x\nx[lazy]: "a"', None),
    ],
)  # fmt: skip
def test_lark(grammar: str, ebnf: str | None) -> None:
    assert is_lark(grammar)
    assert lark_as_ebnf(grammar) == ebnf
    if ebnf is not None:
        check_ebnf(ebnf)


@pytest.mark.parametrize(
    ("grammar", "words"),
    [("", "no rule"), ("a", "expected"), ("start:", "empty"), ("start: x", "x is not defined"), ('start: ("a"', "not closed"),
     ('start: "a', "unexpected"), ("start: | *", "nothing to repeat")],
)  # fmt: skip
def test_lark_that_is_none(grammar: str, words: str) -> None:
    with pytest.raises(BadConstraint, match=words):
        lark_as_ebnf(grammar)


@pytest.mark.parametrize("text", ['a"b', "a\\", "a\nb", "\t\r", "é", "{}"])
def test_choices_become_valid_grammars(text: str) -> None:
    check_ebnf(choice_grammar([text, "other"]))


@pytest.mark.parametrize(
    "wanted",
    [
        {"regex": "[" * 60_000}, {"grammar": "(" * 100_000}, {"grammar": '"' * 99_999}, {"json": "[" * 100_000},
        {"grammar": "root ::= " + "(" * 50_000}, {"structural_tag": "[" * 100_000}, {"grammar": "a: " + "b " * 50_000},
        {"json": {"$ref": "#/" + "a/" * 30_000}}, {"json": {"properties": {"a" * 60_000: 5}}},
    ],
)  # fmt: skip
def test_hostile_input_is_refused_briefly(wanted: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as caught:
        structured_map(wanted, USUAL)
    assert caught.value.status == 400
    assert len(caught.value.body()) < 100_000


def test_much_that_is_right_passes() -> None:
    packb(structured_map({"regex": "(a*)*" * 10_000}, USUAL))
    packb(structured_map({"grammar": 'a: "x"\nb: ' + "a " * 50_000}, USUAL))
