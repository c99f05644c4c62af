import pytest

from trilogue.core.catalog import Catalog
from trilogue.core.errors import LimitExceeded
from trilogue.core.limits import CHANNEL, CONSUMER, EXCLUSIVE_QUEUE, UNACKNOWLEDGED, Limits
from trilogue.core.settings import LimitSettings


@pytest.fixture
def catalog():
    made = Catalog()
    made.apply(made.plan_vhost("/"))
    made.apply(made.plan_user("u", "h", "argon2id", []))
    return made


def limits_of(catalog, **settings):
    return Limits(catalog, LimitSettings(**settings))


def connected(limits, user="u", vhost="/"):
    quota = limits.arrive()
    quota.admit(user, vhost)
    return quota


def refused(text, call, *args):
    with pytest.raises(LimitExceeded) as e:
        call(*args)
    assert text in str(e.value)


def nothing_left(limits):
    return (limits.connections, limits.unauthenticated, limits.per_user, limits.per_vhost, limits.channels_per_user) == (0, 0, {}, {}, {})


def test_connections_per_node(catalog):
    limits = limits_of(catalog, connections_max=2)
    first = connected(limits)
    connected(limits)
    refused("node connection limit (2) is reached", limits.arrive)
    first.close()
    first.close()
    limits.arrive()
    refused("node connection limit (2) is reached", limits.arrive)


def test_connections_without_login(catalog):
    limits = limits_of(catalog, unauthenticated_connections_max=1)
    waiting = limits.arrive()
    refused("without login (1) is reached", limits.arrive)
    waiting.admit("u", "/")
    limits.arrive().close()
    waiting.close()
    assert nothing_left(limits)


@pytest.mark.parametrize("stored", [False, True])
def test_connections_per_user(catalog, stored):
    limits = limits_of(catalog, connections_per_user_max=9 if stored else 1)
    if stored:
        catalog.apply(catalog.plan_user_limits("u", {"max-connections": 1}))
    connected(limits)
    quota = limits.arrive()
    refused("connection refused for user 'u': user connection limit (1) is reached", quota.admit, "u", "/")
    quota.admit("other", "/")
    assert limits.per_user == {"u": 1, "other": 1}


@pytest.mark.parametrize("stored", [False, True])
def test_connections_per_vhost(catalog, stored):
    limits = limits_of(catalog, connections_per_vhost_max=9 if stored else 1)
    if stored:
        catalog.apply(catalog.plan_vhost_limits("/", {"max-connections": 1}))
    connected(limits)
    quota = limits.arrive()
    refused("access to vhost '/' refused for user 'u': vhost connection limit (1) is reached", quota.admit, "u", "/")
    quota.close()
    assert limits.connections == 1
    assert limits.per_vhost == {"/": 1}


def test_a_stored_limit_can_lift_the_nodes(catalog):
    limits = limits_of(catalog, connections_per_user_max=0)
    refused("(0) is reached", connected, limits)
    catalog.apply(catalog.plan_user_limits("u", {"max-connections": -1}))
    connected(limits)


@pytest.mark.parametrize(("kind", "setting", "what"), [
    (CHANNEL, "channels_per_connection_max", "channels"), (CONSUMER, "consumers_per_connection_max", "consumers"),
    (EXCLUSIVE_QUEUE, "exclusive_queues_per_connection_max", "exclusive queues"),
    (UNACKNOWLEDGED, "unacknowledged_per_connection_max", "unacknowledged messages"),
])
def test_per_connection(catalog, kind, setting, what):
    limits = limits_of(catalog, **{setting: 3})
    quota = connected(limits)
    quota.take(kind)
    quota.take(kind, 2)
    refused(f"number of {what} opened (3) has reached the limit of the connection (3)", quota.take, kind)
    connected(limits).take(kind, 3)
    quota.give(kind, 2)
    refused("(3)", quota.take, kind, 3)
    quota.take(kind, 2)


def test_channels_per_user_count_over_connections(catalog):
    limits = limits_of(catalog)
    catalog.apply(catalog.plan_user_limits("u", {"max-channels": 3}))
    one, two = connected(limits), connected(limits)
    one.take(CHANNEL, 2)
    two.take(CHANNEL)
    refused("number of channels opened for user 'u' has reached the maximum allowed user limit of (3)", two.take, CHANNEL)
    one.close()
    one.give(CHANNEL)
    two.take(CHANNEL, 2)
    two.close()
    assert nothing_left(limits)


def test_messages(catalog):
    limits = limits_of(catalog)
    limits.check_message(16 << 20)
    refused("message size 16777217 is larger than configured max size 16777216", limits.check_message, (16 << 20) + 1)
    limits.set(LimitSettings(message_bytes_max=-1))
    limits.check_message(1 << 40)


def test_the_published_defaults():
    settings = LimitSettings()
    assert (settings.frame_bytes_max, settings.message_bytes_max, settings.mqtt_packet_bytes_max) == (131_072, 16_777_216, 2_000_000)
    assert (settings.stomp_headers_max, settings.stomp_header_bytes_max, settings.table_depth_max) == (64, 8_192, 32)
    assert (settings.channels_per_connection_max, settings.consumers_per_connection_max, settings.topic_levels_max) == (2_047, 1_000, 128)
    assert (settings.unauthenticated_bytes_max, settings.login_ms_max, settings.tls_handshake_ms_max) == (8_192, 10_000, 5_000)
