import pytest

from trilogue.core.arguments import QUORUM, parse
from trilogue.core.entities import (
    Binding,
    Exchange,
    Parameter,
    Permission,
    Policy,
    Queue,
    Topic,
    TopicPermission,
    User,
    Vhost,
    canonical,
    check_arguments,
    check_name,
    revive,
)
from trilogue.core.errors import FormatTooNew, InvalidArgument, ResourceLocked
from trilogue.core.ports import TO_QUEUE, TO_TOPIC

QUEUE = Queue(70_000, "/", "q", 3, True, False, 0, 0, {"x-queue-type": "quorum"}, parse({"x-queue-type": "quorum"}, ""))
TOPIC = Topic(70_001, "/", "t", [70_002, 70_003], {"x-queue-type": "stream"}, parse({"x-queue-type": "stream"}, ""))


@pytest.mark.parametrize("entity", [
    Vhost("v", "what", ["a"], "quorum", {"max-queues": 3}),
    User("u", "hash", "argon2id", ["administrator"], {"max-connections": 1}),
    Permission("/", "u", ".*", "^a$", ""),
    TopicPermission("/", "u", "amq.topic", "^a", "^b"),
    Policy("/", "p", "^q", "queues", -3, {"max-length": 4}, False),
    Policy("/", "p", "^q", "queues", 3, {"max-length": 4}, True),
    Parameter("/", "shovel", "s", {"src": [1, None]}),
    Exchange("/", "x", "topic", False, True, True, {"alternate-exchange": "y"}, 9),
    QUEUE,
    TOPIC,
    Binding("/", "x", True, "y", "k", {"x-match": "any", "n": 2**40}),
], ids=lambda entity: type(entity).__name__)
def test_an_entity_survives_its_encoding(entity):
    made = revive(entity.kind, entity.identity(), entity.body())
    assert type(made) is type(entity)
    assert canonical([made.kind, made.identity(), made.body()]) == canonical([entity.kind, entity.identity(), entity.body()])


def test_the_type_is_stored_and_not_only_asked_for():
    body = {**QUEUE.body(), "arguments": {}}
    assert revive(QUEUE.kind, QUEUE.identity(), body).options.type == QUORUM


def test_a_kind_of_the_future_is_refused_in_words():
    with pytest.raises(FormatTooNew, match="newer version"):
        revive(200, [], {})


def test_the_router_knows_destinations_by_one_integer():
    assert QUEUE.target() == 70_000 << 2 | TO_QUEUE
    assert TOPIC.target() == 70_001 << 2 | TO_TOPIC


def test_an_exclusive_queue_is_its_owners():
    queue = Queue(70_000, "/", "q", 3, True, False, 5, 2, {}, parse({}, ""))
    queue.check_access(5, 2)
    for owner, epoch in ((6, 2), (5, 3), (0, 0)):
        with pytest.raises(ResourceLocked, match="cannot obtain exclusive access to locked queue 'q' in vhost '/'"):
            queue.check_access(owner, epoch)
    QUEUE.check_access(6, 2)
    TOPIC.check_access(6, 2)


def test_names_have_at_most_255_bytes():
    check_name("queue", "é" * 127)
    for name in ("é" * 128, "\ud800"):
        with pytest.raises(InvalidArgument):
            check_name("queue", name)


def test_arguments_are_bounded_and_can_be_written():
    check_arguments("q", {"a": "x" * 65_000})
    loop = {}
    loop["self"] = loop
    for arguments in ({"a": "x" * 65_537}, {"a": object()}, loop, {"a": "\ud800"}):
        with pytest.raises(InvalidArgument):
            check_arguments("q", arguments)


def test_equal_bindings_have_one_key_whatever_the_order():
    assert Binding("/", "x", False, "q", "k", {"a": 1, "b": 2}).key == Binding("/", "x", False, "q", "k", {"b": 2, "a": 1}).key
    assert Binding("/", "x", False, "q", "k", {"a": 1}).key != Binding("/", "x", True, "q", "k", {"a": 1}).key
