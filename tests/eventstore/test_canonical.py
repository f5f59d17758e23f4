"""What is stored is exact, and what could not be read back by everybody is refused with one line."""

import pytest

from eventstore.canonical import MAX_PAYLOAD, encode
from eventstore.errors import BadInput
from eventstore.facts import EpisodeResumed, Faulted


def resumed(value: object) -> EpisodeResumed:
    return EpisodeResumed(environment={"x": value})


def nested(depth: int) -> object:
    return [] if depth == 0 else [nested(depth - 1)]


def test_keys_are_sorted_and_nothing_is_spaced_or_escaped():
    assert encode(EpisodeResumed(environment={"é": 1.0, "a": [True, None, "\n"]})) == (
        '{"environment":{"a":[true,null,"\\n"],"é":1.0},"kind":"episode.resumed"}'.encode()
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (float("nan"), "episode.resumed.environment.x: nan is not a finite number"),
        ([1, float("-inf")], "episode.resumed.environment.x[1]: -inf is not a finite number"),
        (2**53, "episode.resumed.environment.x: integer 9007199254740992 is not below 2**53; store it as text"),
        (-(2**53), "episode.resumed.environment.x: integer -9007199254740992 is not below 2**53; store it as text"),
        ({1: 2}, "episode.resumed.environment.x: key 1 is not text"),
        (b"bytes", "episode.resumed.environment.x: bytes is not JSON"),
        ("\ud800", "episode.resumed: text with a lone surrogate cannot be stored"),
    ],
)
def test_what_json_cannot_hold_is_refused(value, message):
    with pytest.raises(BadInput) as caught:
        encode(resumed(value))
    assert str(caught.value) == message


def test_the_largest_integer_that_every_reader_holds_is_stored():
    assert encode(resumed(2**53 - 1)) == b'{"environment":{"x":9007199254740991},"kind":"episode.resumed"}'


def test_a_payload_too_deep_or_too_large_is_refused():
    with pytest.raises(BadInput, match="nested deeper than 64"):
        encode(resumed(nested(100)))
    with pytest.raises(BadInput, match="store a blob"):
        encode(resumed("x" * MAX_PAYLOAD))


def test_a_fact_that_would_not_be_read_back_is_refused():
    wrong = Faulted.model_construct(stage=None, detail="", attempt=1)
    with pytest.raises(
        BadInput, match=r"^faulted: would not be read back: faulted\.stage: Input should be a valid string"
    ):
        encode(wrong)
