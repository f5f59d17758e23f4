"""Output is counted whole and kept in part, however it is cut into pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sandbox.api import Captured
from sandbox.capture import Capture, Frames


@given(st.lists(st.binary(max_size=20), max_size=20), st.integers(1, 15))
def test_head_and_tail_are_those_of_the_whole_stream(pieces, kept):
    capture, whole = Capture(kept), b"".join(pieces)
    for piece in pieces:
        capture.feed(piece)
    rest = whole[kept:]
    assert capture.captured() == Captured(seen=len(whole), head=whole[:kept], tail=rest[-kept:])


def test_text_marks_the_gap_and_escapes_what_a_terminal_would_obey():
    assert Captured(seen=10, head=b"a\x1b[2J\xff", tail=b"z").text() == "a\\x1b[2J\\xff\n[... 3 bytes not kept ...]\nz"


@given(
    st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=9)), max_size=12),
    st.lists(st.integers(1, 13), min_size=1),
)
def test_frames_reach_their_stream_however_the_socket_cuts_them(messages, cuts):
    wire = b"".join(bytes([n, 0, 0, 0]) + len(data).to_bytes(4, "big") + data for n, data in messages)
    got = {1: b"", 2: b""}

    def sink(number):
        def take(piece):
            got[number] += piece

        return take

    frames, turn = Frames({1: sink(1), 2: sink(2)}), 0
    while wire:
        size = cuts[turn % len(cuts)]
        frames.feed(wire[:size])
        wire, turn = wire[size:], turn + 1
    assert got == {n: b"".join(data for m, data in messages if m == n) for n in (1, 2)}
