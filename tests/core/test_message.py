from __future__ import annotations

from librt.strings import BytesWriter

from trilogue.core.message import Run, encode_address, native_span


def test_a_part_is_a_run_of_its_own() -> None:
    run = Run(b"ex", b"key", 2, [b"a", b"bb", b"ccc"], 6, 1, 4, 500, b"k", b"notes")
    run.deadline_ms, run.time_ms = 99, 7
    part = run.part(1, 3)
    assert (part.spans, part.size, part.offset) == ([b"bb", b"ccc"], 5, -1)
    run.offset = 40
    part = run.part(1, 3)
    assert (part.offset, part.deadline_ms, part.time_ms, part.ttl_ms, part.priority, part.notes) == (41, 99, 7, 500, 4, b"notes")
    assert len(run) == 3


def test_address_and_span_as_bytes() -> None:
    w = BytesWriter()
    encode_address(w, b"ex", b"key", b"", b"n")
    assert w.getvalue().hex() == "02" + b"ex".hex() + "0003" + b"key".hex() + "0000" + "0001" + b"n".hex()
    assert native_span(b"\xa0", b"body") == b"\0\0\0\x01\xa0body"
