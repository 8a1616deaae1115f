from __future__ import annotations

import json

import pytest

from fastfront import errors


def test_body_has_the_one_shape_compact_and_in_key_order() -> None:
    error = errors.ApiError("no ü", status=404, kind="NotFoundError", param="model")
    assert error.body() == '{"error":{"message":"no ü","type":"NotFoundError","param":"model","code":404}}'.encode()


def test_a_plain_refusal_is_a_400_without_a_field() -> None:
    assert json.loads(errors.ApiError("x").body()) == {
        "error": {"message": "x", "type": "BadRequestError", "param": None, "code": 400}
    }


@pytest.mark.parametrize("text", ["lone \ud83d", "\udc00\x00\u2028", 'quote " and \\ and \n'])
def test_body_is_utf8_whatever_the_message_holds(text: str) -> None:
    json.loads(errors.ApiError(text, param=text).body().decode("utf-8", "strict"))


def test_bad_value_names_the_field_and_the_value() -> None:
    error = errors.bad_value("top_p must be in (0, 1], got 0.0.", "top_p", 0.0)
    assert error.message == "top_p must be in (0, 1], got 0.0. (parameter=top_p, value=0.0)"
    assert error.param == "top_p"
    assert errors.bad_value("Bad.", "x").message == "Bad. (parameter=x)"


def test_an_unknown_model_is_a_404_listing_the_names() -> None:
    error = errors.unknown_model("other", "a, b")
    assert (error.status, error.kind, error.param) == (404, "NotFoundError", "model")
    assert error.message == "The model `other` does not exist. Valid aliases: a, b."


@pytest.mark.parametrize(("status", "phrase"), [(404, "Not Found"), (405, "Method Not Allowed"), (503, "Service Unavailable")])
def test_errors_of_the_http_layer_have_its_phrase_as_type(status: int, phrase: str) -> None:
    error = errors.http_error(status)
    assert (error.status, error.kind, error.message) == (status, phrase, phrase)
