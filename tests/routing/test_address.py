import pytest
from hypothesis import given
from hypothesis import strategies as st

from trilogue.core.errors import InvalidArgument
from trilogue.routing import address
from trilogue.routing.address import (
    check_filter,
    filter_to_pattern,
    format_destination,
    is_topic,
    key_to_topic,
    parse_destination,
    pattern_to_filter,
    topic_to_key,
)
from trilogue.routing.trie import amqp_trie, mqtt_trie

levels = st.lists(st.sampled_from(["a", "b", ""]), min_size=1, max_size=5)
filter_words = st.lists(st.sampled_from(["a", "b", "", "+"]), max_size=4)
filters = st.builds(lambda words, rest: "/".join([*words, "#"] if rest else words), filter_words, st.booleans())


@pytest.mark.parametrize(("topic", "key"), [
    (b"a/b/c", b"a.b.c"), (b"/lead/x", b".lead.x"), (b"$X/y", b"$X.y"), (b"a", b"a"), ("ü/x".encode(), "ü.x".encode()),
])
def test_topic_and_key(topic: bytes, key: bytes) -> None:
    assert topic_to_key(topic) == key
    assert key_to_topic(key) == topic


def test_dots_in_topics_are_lost_on_the_way() -> None:
    assert topic_to_key(b"a/b.c/d") == b"a.b.c.d"
    assert key_to_topic(b"a.b.c.d") == b"a/b/c/d"


@pytest.mark.parametrize(("topic_filter", "pattern"), [("a/+/c", "a.*.c"), ("a/#", "a.#"), ("#", "#"), ("+/+", "*.*"), ("/a", ".a")])
def test_filter_and_pattern(topic_filter: str, pattern: str) -> None:
    assert filter_to_pattern(topic_filter) == pattern
    assert pattern_to_filter(pattern) == topic_filter


@pytest.mark.parametrize("pattern", ["#.a", "a.#.b", "", "a.b#"])
def test_patterns_that_mqtt_cannot_say(pattern: str) -> None:
    with pytest.raises(InvalidArgument):
        pattern_to_filter(pattern)


@given(filters.filter(bool), levels)
def test_a_translated_filter_matches_the_translated_topic(topic_filter: str, words: list[str]) -> None:
    topic = "/".join(words)
    mqtt, amqp = mqtt_trie(), amqp_trie()
    mqtt.add(topic_filter, 1)
    amqp.add(filter_to_pattern(topic_filter), 1)
    ours: list[int] = []
    theirs: list[int] = []
    mqtt.match(topic, ours)
    amqp.match(topic_to_key(topic.encode()).decode(), theirs)
    assert ours == theirs


@pytest.mark.parametrize("topic", [b"a", b"/", b"a//b", b"$SYS/x", "grün".encode(), b"a*b", b"x" * 65_535])
def test_good_topics(topic: bytes) -> None:
    assert is_topic(topic)


@pytest.mark.parametrize("topic", [b"", b"a/+", b"#", b"a\0b", b"\xff", b"x" * 65_536])
def test_bad_topics(topic: bytes) -> None:
    assert not is_topic(topic)


@pytest.mark.parametrize("topic_filter", ["#", "+", "a/+/b/#", "/", "$share", "a" * 65_535, "/" * 999])
def test_good_filters(topic_filter: str) -> None:
    check_filter(topic_filter)


@pytest.mark.parametrize("topic_filter", ["", "a#", "#/a", "a/#/b", "a+/b", "+a", "a\0", "a" * 65_536, "ü" * 40_000, "/" * 1_000])
def test_bad_filters(topic_filter: str) -> None:
    with pytest.raises(InvalidArgument):
        check_filter(topic_filter)


@pytest.mark.parametrize(("text", "kind", "exchange", "key"), [
    ("/queue/q", address.QUEUE, "", "q"),
    ("q", address.QUEUE, "", "q"),
    ("q%2Fr", address.QUEUE, "", "q/r"),
    ("/queue/a%2Fb", address.QUEUE, "", "a/b"),
    ("/queue/a%2fb%25", address.QUEUE, "", "a%2fb%25"),
    ("/topic/a.*.#", address.TOPIC, "amq.topic", "a.*.#"),
    ("/exchange/x", address.EXCHANGE, "x", ""),
    ("/exchange/x/", address.EXCHANGE, "x", ""),
    ("/exchange/x%2Fy/k%2Fl", address.EXCHANGE, "x/y", "k/l"),
    ("/amq/queue/q", address.AMQ_QUEUE, "", "q"),
    ("/temp-queue/t", address.TEMP_QUEUE, "", "t"),
    ("/reply-queue/amq.gen/with/slashes", address.REPLY_QUEUE, "", "amq.gen/with/slashes"),
])
def test_stomp_destinations(text: str, kind: int, exchange: str, key: str) -> None:
    parsed = parse_destination(text)
    assert (parsed.kind, parsed.exchange, parsed.routing_key) == (kind, exchange, key)


@pytest.mark.parametrize(("text", "reason"), [
    ("/queue/a/b", "'/a/b' is not a valid queue destination\n"),
    ("/queue", "'' is not a valid queue destination\n"),
    ("/queue/", "'/' is not a valid queue destination\n"),
    ("/topic/a/b", "'/a/b' is not a valid topic destination\n"),
    ("/exchange//x", "'//x' is not a valid exchange destination\n"),
    ("/exchange", "'' is not a valid exchange destination\n"),
    ("/exchange/a/b/c", "'/a/b/c' is not a valid exchange destination\n"),
    ("/amq/queue/a/b", "'/a/b' is not a valid amqqueue destination\n"),
])
def test_invalid_stomp_destinations(text: str, reason: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_destination(text)
    assert str(caught.value) == reason


@pytest.mark.parametrize("text", ["", "/", "/nowhere/x", "a/b", "/amq/topic/x", "/reply-queue", "/Queue/q"])
def test_unknown_stomp_destinations(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"^Unknown destination"):
        parse_destination(text)


@pytest.mark.parametrize(("exchange", "key", "text"), [
    (b"", b"q", "/queue/q"),
    (b"amq.topic", b"a.b", "/topic/a.b"),
    (b"x", b"k", "/exchange/x/k"),
    (b"x", b"", "/exchange/x"),
    (b"", b"a/b%c\n\xff ", "/queue/a%2Fb%25c%0A%FF "),
])
def test_destinations_of_messages(exchange: bytes, key: bytes, text: str) -> None:
    assert format_destination(exchange, key) == text


def test_another_exchange_may_be_the_topic_exchange() -> None:
    assert parse_destination("/topic/k", "events").exchange == "events"
    assert format_destination(b"events", b"k", b"events") == "/topic/k"
    assert format_destination(b"amq.topic", b"k", b"events") == "/exchange/amq.topic/k"


@given(st.text(st.sampled_from("ab/. *#"), min_size=1), st.text(st.sampled_from("ab/. *#"), min_size=1))
def test_what_is_formatted_parses_back(exchange: str, key: str) -> None:
    parsed = parse_destination(format_destination(exchange.encode(), key.encode()))
    assert (parsed.exchange, parsed.routing_key) == (exchange, key)
