import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trilogue.core.arguments import (
    AT_LEAST_ONCE,
    CLASSIC,
    DROP_HEAD,
    OS,
    QUORUM,
    REJECT_PUBLISH,
    SPECS,
    STREAM,
    UNSET,
    joined,
    parse,
    require_equivalent,
    require_field,
    stored,
)
from trilogue.core.errors import InvalidArgument, PreconditionFailed

WHERE = "queue 'q' in vhost '/'"


def test_every_argument_reaches_its_field():
    options = parse({
        "x-message-ttl": 0, "x-expires": 60_000, "x-max-length": 10, "x-max-length-bytes": 1_000, "x-overflow": "reject-publish",
        "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead", "x-dead-letter-strategy": "at-least-once", "x-max-priority": 255,
        "x-single-active-consumer": True, "x-delivery-limit": 3, "x-consumer-timeout": 5, "x-retention": 7, "x-message-deduplication": True,
        "x-cache-size": 8, "x-cache-ttl": 9, "x-deduplication-header": "x-id",
    }, WHERE)
    assert options.type == CLASSIC
    assert (options.message_ttl_ms, options.expires_ms, options.max_length, options.max_bytes) == (0, 60_000, 10, 1_000)
    assert (options.overflow, options.dead_letter_strategy) == (REJECT_PUBLISH, AT_LEAST_ONCE)
    assert (options.dead_letter_exchange, options.dead_letter_routing_key, options.dead_letters()) == ("", "dead", True)
    assert (options.max_priority, options.single_active_consumer, options.delivery_limit) == (255, True, 3)
    assert (options.consumer_timeout_ms, options.retention_ms) == (5, 7)
    assert (options.deduplication, options.dedup_size, options.dedup_ttl_ms, options.dedup_header) == (True, 8, 9, "x-id")


def test_a_stream_has_its_own_arguments():
    options = parse({"x-queue-type": "stream", "x-partitions": 8, "x-max-age": "7D", "x-stream-max-segment-size-bytes": 1_000, "x-compact": True,
                     "x-durability": "os"}, WHERE)
    assert options.type == STREAM
    assert (options.partitions, options.max_age_ms, options.segment_bytes, options.compact) == (8, 7 * 86_400_000, 1_000, True)
    assert options.durability == OS


def test_nothing_said_is_unset_and_defaults_come_last():
    options = parse({}, WHERE)
    assert (options.message_ttl_ms, options.overflow, options.dead_letter_exchange) == (UNSET, UNSET, None)
    assert options.finished().overflow == DROP_HEAD
    assert options.finished().delivery_limit == UNSET
    assert parse({"x-queue-type": "quorum"}, WHERE).finished().delivery_limit == 20
    assert parse({"x-queue-type": "quorum", "x-delivery-limit": -1}, WHERE).finished().delivery_limit == UNSET


@pytest.mark.parametrize(("arguments", "reason"), [
    ({"x-message-ttl": -1}, "invalid arg 'x-message-ttl' for queue 'q' in vhost '/': {value_negative,-1}"),
    ({"x-message-ttl": "60"}, "invalid arg 'x-message-ttl' for queue 'q' in vhost '/': {unacceptable_type,longstr}"),
    ({"x-message-ttl": True}, "invalid arg 'x-message-ttl' for queue 'q' in vhost '/': {unacceptable_type,bool}"),
    ({"x-message-ttl": 2**63}, f"invalid arg 'x-message-ttl' for queue 'q' in vhost '/': {{value_too_large,{2**63}}}"),
    ({"x-message-ttl": 2**50}, f"invalid arg 'x-message-ttl' for queue 'q' in vhost '/': {{value_too_large,{2**50}}}"),
    ({"x-message-ttl": 1.5}, "{unacceptable_type,double}"),
    ({"x-expires": 0}, "invalid arg 'x-expires' for queue 'q' in vhost '/': {value_zero,0}"),
    ({"x-max-priority": 256}, "invalid arg 'x-max-priority' for queue 'q' in vhost '/': {max_value_exceeded,256}"),
    ({"x-overflow": "spill"}, "invalid arg 'x-overflow' for queue 'q' in vhost '/': invalid_overflow"),
    ({"x-dead-letter-routing-key": "k"}, "invalid arg 'x-dead-letter-routing-key' for queue 'q' in vhost '/': routing_key_but_no_dlx_defined"),
    ({"x-dead-letter-exchange": 5}, "{unacceptable_type,signedint}"),
    ({"x-dead-letter-exchange": 2**40}, "{unacceptable_type,long}"),
    ({"x-dead-letter-exchange": "x" * 256}, "name_too_long"),
    ({"x-single-active-consumer": 1}, "{unacceptable_type,signedint}"),
    ({"x-queue-type": "mirrored"}, "invalid arg 'x-queue-type' for queue 'q' in vhost '/': invalid_queue_type"),
    ({"x-queue-type": None}, "{unacceptable_type,void}"),
    ({"x-queue-type": "stream", "x-max-age": "7 days"}, "invalid_max_age"),
    ({"x-queue-type": "stream", "x-max-age": ""}, "invalid_max_age"),
    ({"x-queue-type": "stream", "x-max-age": "²D"}, "invalid_max_age"),
    ({"x-queue-type": "stream", "x-max-age": "9999999999Y"}, "value_too_large"),
    ({"x-queue-type": "stream", "x-partitions": 0}, "{value_zero,0}"),
    ({"x-queue-type": "stream", "x-partitions": 10_001}, "{max_value_exceeded,10001}"),
    ({"x-queue-type": "stream", "x-max-priority": 3}, "invalid arg 'x-max-priority' for queue 'q' in vhost '/' of queue type stream"),
    ({"x-max-age": "1D"}, "invalid arg 'x-max-age' for queue 'q' in vhost '/' of queue type classic"),
])
def test_what_cannot_be_is_refused_in_familiar_words(arguments, reason):
    with pytest.raises(InvalidArgument) as e:
        parse(arguments, WHERE)
    assert reason in str(e.value)


def test_unknown_arguments_are_accepted():
    assert parse({"x-ours": [1, {"a": None}], "anything": 1}, WHERE).same(parse({}, WHERE))


def test_stored_arguments_are_never_refused():
    assert stored({"x-message-ttl": -5, "x-max-length": 3}, "classic").max_length == 3
    assert stored({}, "a type of the future").type == CLASSIC


VALUES = st.one_of(st.integers(), st.text(max_size=8), st.booleans(), st.floats(), st.none(), st.binary(max_size=3), st.lists(st.integers()))


@settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from([spec.argument for spec in SPECS] + ["x-queue-type", "other"]), VALUES, max_size=5))
def test_any_argument_is_taken_or_refused_and_nothing_else(arguments):
    try:
        options = parse(arguments, WHERE)
    except InvalidArgument:
        return
    assert options.copy().same(options)
    assert stored(arguments, arguments.get("x-queue-type", "classic")).same(options)


def test_of_limits_the_lower_wins_and_of_the_rest_the_argument():
    options = parse({"x-message-ttl": 100, "x-max-length": 5, "x-dead-letter-exchange": "mine"}, WHERE)
    made = joined(options, {"message-ttl": 50, "max-length": 9, "max-length-bytes": 7, "dead-letter-exchange": "theirs",
                            "dead-letter-routing-key": "k", "overflow": "reject-publish"})
    assert (made.message_ttl_ms, made.max_length, made.max_bytes, made.overflow) == (50, 5, 7, REJECT_PUBLISH)
    assert (made.dead_letter_exchange, made.dead_letter_routing_key) == ("mine", None)
    assert options.message_ttl_ms == 100


def test_a_policy_can_tighten_an_unlimited_delivery_limit():
    options = parse({"x-queue-type": "quorum", "x-delivery-limit": -1}, WHERE)
    assert joined(options, {"delivery-limit": 4}).delivery_limit == 4
    assert joined(parse({"x-queue-type": "quorum"}, WHERE), {"delivery-limit": 50}).finished().delivery_limit == 50


def test_a_policy_of_another_queue_type_is_passed_over():
    assert joined(parse({"x-queue-type": "stream"}, WHERE), {"message-ttl": 5}).message_ttl_ms == UNSET
    assert parse({"x-queue-type": "quorum"}, WHERE).type == QUORUM


@pytest.mark.parametrize(("received", "current", "text"), [
    ({"x-message-ttl": 2000}, {"x-message-ttl": 1000},
     "inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': received '2000' but current is '1000'"),
    ({}, {"x-message-ttl": 1000},
     "inequivalent arg 'x-message-ttl' for queue 'q' in vhost '/': received none but current is the value '1000' of type 'signedint'"),
    ({"x-dead-letter-exchange": "d"}, {},
     "inequivalent arg 'x-dead-letter-exchange' for queue 'q' in vhost '/': received the value 'd' of type 'longstr' but current is none"),
    ({"x-single-active-consumer": True}, {"x-single-active-consumer": 1}, "received 'true' but current is '1'"),
])
def test_inequivalent_arguments(received, current, text):
    with pytest.raises(PreconditionFailed) as e:
        require_equivalent(WHERE, received, current, "classic", "classic")
    assert text in str(e.value)


def test_equivalent_arguments():
    require_equivalent(WHERE, {"x-consumer-timeout": 1, "own": 2}, {"own": 3}, "classic", "classic")
    require_equivalent(WHERE, {"x-queue-type": "quorum"}, {}, "quorum", "classic")
    require_equivalent(WHERE, {}, {"x-queue-type": "quorum"}, "quorum", "quorum")
    with pytest.raises(PreconditionFailed, match=r"inequivalent arg 'x-queue-type' .*: received none but current is the value 'quorum' of type"):
        require_equivalent(WHERE, {}, {"x-queue-type": "quorum"}, "quorum", "classic")


def test_properties_are_named_like_arguments():
    with pytest.raises(PreconditionFailed) as e:
        require_field("durable", WHERE, False, True)
    assert str(e.value) == "inequivalent arg 'durable' for queue 'q' in vhost '/': received 'false' but current is 'true'"
