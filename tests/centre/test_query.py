"""What `omniwatch fleet status` asks of a centre, and what it makes of answers that are none."""

from __future__ import annotations

import pytest

from helpers.fake_prometheus import centre
from omniwatch.centre.query import Centre, QueryError, Sample


def test_a_question_carries_the_token_and_asks_for_what_is_new(tmp_path):
    (tmp_path / "token").write_text("s3cret\n")
    with centre({"up": [Sample({"device": "a"}, 1)]}) as (url, requests):
        assert Centre(f"{url}/", tmp_path / "token").instant("up") == [Sample({"device": "a"}, 1)]
    path, headers, form = requests[0]
    assert (path, headers["Authorization"]) == ("/api/v1/query", "Bearer s3cret")
    assert form == {"query": ["up"], "nocache": ["1"]}


DEEP = b'{"status":"success","data":{"resultType":"vector","result":%s}}' % (b"[" * 100_000 + b"]" * 100_000)


@pytest.mark.parametrize(
    ("code", "body", "said"),
    [
        (401, b"", "401 Unauthorized (is the token right?)"),
        (404, b"nothing\n here", "404 nothing here (is this the address of the API?)"),
        (302, b"", "302 Found"),
        (422, b'{"status":"error","error":"too\\nmany"}', "422 too many"),
        (200, b'{"status":"error","error":"bad"}', "bad"),
        (200, DEEP, "this does not answer as Prometheus does"),
        (422, b'{"a":' + b"[" * 2**15, '422 {"a":[[['),
        (200, b"<html>", "this does not answer as Prometheus does"),
        (200, b'{"status":"success","data":{"resultType":"matrix","result":[]}}', "a matrix where a vector was expected"),
        (200, b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"x"]}]}}', "this does not"),
    ],
)  # fmt: skip
def test_a_centre_that_does_not_answer_well_is_told_in_one_line(code, body, said):
    with centre(code=code, body=body) as (url, requests), pytest.raises(QueryError) as caught:
        Centre(url).instant("up")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(requests) == 1


@pytest.mark.parametrize(
    ("code", "said"),
    [(503, "503 Service Unavailable"), (200, "the connection ended in the middle of the answer")],
)
def test_an_answer_that_is_cut_short_is_told_in_one_line(code, said):
    with (
        centre(code=code, body=b"ff\r\nshort", encoding="chunked") as (url, _),
        pytest.raises(QueryError) as caught,
    ):
        Centre(url).instant("up")
    assert str(caught.value) == f"{url}: {said}"


@pytest.mark.parametrize(
    "secret", [b"s3cret\nm0re\n", b"s3cret m0re", b"s3cret\x00", b"s3cret\xff", "s3crét".encode(), b" \n"]
)
def test_a_file_that_is_no_token_is_named_and_not_shown(tmp_path, secret):
    path = tmp_path / "token"
    path.write_bytes(secret)
    with pytest.raises(QueryError) as caught:
        Centre("http://127.0.0.1:1", path)
    assert str(caught.value) == f"{path}: expected a token alone, on one line, of ASCII signs without space"
