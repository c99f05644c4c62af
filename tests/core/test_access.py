import base64
import hashlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trilogue.core.access import A_QUEUE, AN_EXCHANGE, CONFIGURE, READ, WRITE, Access, Identity
from trilogue.core.catalog import Catalog
from trilogue.core.errors import AccessRefused, AuthenticationFailed, NotFound
from trilogue.core.passwords import ARGON2ID, SHA256, hash_password, verify
from trilogue.core.ports import Callback, Scheduler, Timer
from trilogue.core.settings import AccessSettings

HASH = hash_password("secret")


class Clock(Scheduler):
    def __init__(self):
        self.ms = 1_000_000

    def call_soon(self, callback: Callback) -> None:
        raise NotImplementedError

    def call_later(self, delay_s: float, callback: Callback) -> Timer:
        raise NotImplementedError

    def now_ms(self):
        return self.ms


@pytest.fixture
def catalog():
    made = Catalog()
    made.apply(made.plan_vhost("/"))
    for name in ("u", "guest"):
        made.apply(made.plan_user(name, HASH, ARGON2ID, ["management"]))
    return made


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def access(catalog, clock):
    return Access(catalog, AccessSettings(), clock, b"a secret of this process")


def permit(catalog, configure=".*", write=".*", read=".*", user="u"):
    assert catalog.apply(catalog.plan_permission("/", user, configure, write, read))


def may(access, identity, action, kind, name, routing_key=None):
    try:
        access.authorise(identity, action, "/", kind, name, routing_key)
    except AccessRefused:
        return False
    return True


# ------------------------------------------------------------------------------------------------ who

def test_a_login(access):
    identity = access.authenticate("u", "secret", False)
    assert (identity.user, identity.anonymous, identity.has_tag("management"), identity.has_tag("administrator")) == ("u", False, True, False)


@pytest.mark.parametrize(("user", "password", "loopback"), [
    ("u", "wrong", True), ("u", "", True), ("nobody", "secret", True), ("", "", True), ("guest", "secret", False), ("u\0", "secret", True),
])
def test_all_failures_look_alike(access, user, password, loopback):
    with pytest.raises(AuthenticationFailed) as e:
        access.authenticate(user, password, loopback)
    assert str(e.value) == f"login refused for user '{user}'"


def test_guest_comes_from_this_machine_only(access):
    assert access.authenticate("guest", "secret", True).user == "guest"
    with pytest.raises(AuthenticationFailed):
        access.authenticate("guest", "secret", False)       # though remembered


def test_an_unknown_user_costs_a_hash_too(access):
    login = access.prepare("nobody", "secret", True)
    assert login.algorithm == ARGON2ID
    assert login.stored.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert not login.known


def test_a_user_without_a_hash_cannot_log_in(access, catalog):
    catalog.apply(catalog.plan_user("empty", "", ARGON2ID, []))
    for password in ("", "x"):
        with pytest.raises(AuthenticationFailed):
            access.authenticate("empty", password, True)


def test_verified_credentials_are_remembered_for_a_while(access, clock):
    access.authenticate("u", "secret", False)
    assert access.prepare("u", "secret", False).remembered
    assert not access.prepare("u", "Secret", False).remembered
    clock.ms += AccessSettings().remember_login_ms
    assert not access.prepare("u", "secret", False).remembered


def test_what_is_remembered_is_not_the_password(access):
    access.authenticate("u", "secret", False)
    (mark,) = access.remembered
    assert b"secret" not in mark
    assert len(mark) == 32
    assert access.mark("a", "bc") != access.mark("ab", "c")


def test_a_new_password_forgets_the_old_one_at_once(access, catalog):
    access.authenticate("u", "secret", False)
    late = access.prepare("u", "secret", False)
    late.verify()
    catalog.apply(catalog.plan_user("u", hash_password("other"), ARGON2ID, []))
    with pytest.raises(AuthenticationFailed):
        access.finish(late)
    with pytest.raises(AuthenticationFailed):
        access.authenticate("u", "secret", False)


def test_a_deleted_user_is_refused_though_remembered(access, catalog):
    access.authenticate("u", "secret", False)
    catalog.apply(catalog.plan_delete_user("u"))
    with pytest.raises(AuthenticationFailed):
        access.authenticate("u", "secret", False)


def test_memory_for_logins_is_bounded(catalog, clock):
    access = Access(catalog, AccessSettings(remembered_logins_max=1), clock, b"s")
    access.authenticate("u", "secret", True)
    access.authenticate("guest", "secret", True)
    assert len(access.remembered) == 1


def test_a_hash_of_rabbitmq_is_made_anew_at_the_first_login(access, catalog):
    salted = base64.b64encode(b"salt" + hashlib.sha256(b"saltold").digest()).decode()
    catalog.apply(catalog.plan_user("r", salted, SHA256, []))
    login = access.prepare("r", "old", False)
    login.verify()
    assert access.finish(login).user == "r"
    assert verify(ARGON2ID, login.rehashed, "old")
    catalog.apply(catalog.plan_user("r", login.rehashed, ARGON2ID, []))
    again = access.prepare("r", "old", False)
    again.verify()
    assert access.finish(again).user == "r"
    assert again.rehashed == ""
    with pytest.raises(AuthenticationFailed):
        access.authenticate("r", "wrong", False)


def test_anonymous(catalog, clock):
    assert Access(catalog, AccessSettings(), clock, b"s").anonymous(True).anonymous
    for chosen, loopback in ((AccessSettings(), False), (AccessSettings(anonymous_remote=True), False), (AccessSettings(anonymous_user=""), True)):
        with pytest.raises(AuthenticationFailed):
            Access(catalog, chosen, clock, b"s").anonymous(loopback)
    assert Access(catalog, AccessSettings(anonymous_user="u", anonymous_remote=True), clock, b"s").anonymous(False).user == "u"


def test_certificates(access):
    assert access.certified("u", False).user == "u"
    for user in ("nobody", "guest"):
        with pytest.raises(AuthenticationFailed):
            access.certified(user, False)


# ------------------------------------------------------------------------------------------------ may they

def test_entering_a_vhost(access, catalog):
    with pytest.raises(NotFound, match="vhost 'no' not found"):
        access.enter(Identity("u", []), "no")
    with pytest.raises(AccessRefused, match="access to vhost '/' refused for user 'u'"):
        access.enter(Identity("u", []), "/")
    permit(catalog, "", "", "")
    access.enter(Identity("u", []), "/")


def test_each_action_has_its_pattern(access, catalog):
    permit(catalog, "^c", "^w", "^r")
    u = Identity("u", [])
    assert [[may(access, u, action, A_QUEUE, name) for name in ("c1", "w1", "r1")] for action in (CONFIGURE, WRITE, READ)] == [
        [True, False, False], [False, True, False], [False, False, True]]


def test_the_words_of_a_refusal(access, catalog):
    with pytest.raises(AccessRefused) as e:
        access.authorise(Identity("u", []), WRITE, "/", A_QUEUE, "x")
    assert str(e.value) == "write access to queue 'x' in vhost '/' refused for user 'u'"


def test_patterns_are_not_anchored_and_empty_is_nothing(access, catalog):
    permit(catalog, "", "b", "^b$")
    u = Identity("u", [])
    assert not may(access, u, CONFIGURE, A_QUEUE, "b")
    assert may(access, u, WRITE, A_QUEUE, "abc")
    assert not may(access, u, READ, A_QUEUE, "abc")


def test_the_default_exchange_has_a_name_for_patterns(access, catalog):
    permit(catalog, "", "^amq\\.default$", "")
    u = Identity("u", [])
    assert may(access, u, WRITE, AN_EXCHANGE, "")
    assert not may(access, u, CONFIGURE, AN_EXCHANGE, "")
    permit(catalog, "", "^q$", "")
    assert not may(access, u, WRITE, AN_EXCHANGE, "")


def test_a_change_counts_at_once(access, catalog):
    u = Identity("u", [])
    permit(catalog)
    version = access.version
    assert may(access, u, READ, A_QUEUE, "q")
    assert may(access, u, READ, A_QUEUE, "q")
    catalog.apply(catalog.plan_permission("/", "u", ".*", ".*", "^other"))
    assert access.version > version
    assert not may(access, u, READ, A_QUEUE, "q")
    catalog.apply(catalog.plan_delete_permission("/", "u"))
    assert not may(access, u, WRITE, A_QUEUE, "q")


def test_memory_for_decisions_is_bounded(catalog, clock):
    access = Access(catalog, AccessSettings(decisions_max=10, patterns_max=10), clock, b"s")
    permit(catalog)
    catalog.apply(catalog.plan_topic_permission("/", "u", "amq.topic", "^{client_id}", ""))
    for n in range(50):
        assert may(access, Identity("u", [], f"c{n}"), WRITE, AN_EXCHANGE, "amq.topic", f"c{n}")
        assert may(access, Identity("u", []), WRITE, A_QUEUE, f"q{n}")
    assert len(access.decisions) <= 10
    assert len(access.patterns) <= 10


def test_topic_permissions_matter_only_where_they_are_set(access, catalog):
    permit(catalog)
    u = Identity("u", [])
    assert may(access, u, WRITE, AN_EXCHANGE, "amq.topic", "a.b")
    catalog.apply(catalog.plan_topic_permission("/", "u", "amq.topic", "^a", ""))
    catalog.apply(catalog.plan_topic_permission("/", "u", "amq.direct", "^a", ""))
    assert may(access, u, WRITE, AN_EXCHANGE, "amq.topic", "a.b")
    assert not may(access, u, WRITE, AN_EXCHANGE, "amq.topic", "b.a")
    assert not may(access, u, READ, AN_EXCHANGE, "amq.topic", "a.b")
    assert may(access, u, WRITE, AN_EXCHANGE, "amq.topic")
    assert may(access, u, WRITE, AN_EXCHANGE, "amq.direct", "b.a")     # not a topic exchange
    assert may(access, u, CONFIGURE, AN_EXCHANGE, "amq.topic", "b.a")
    with pytest.raises(AccessRefused) as e:
        access.authorise(u, WRITE, "/", AN_EXCHANGE, "amq.topic", "b.a")
    assert str(e.value) == "write access to topic 'b.a' in exchange 'amq.topic' in vhost '/' refused for user 'u'"


def test_topic_permissions_do_not_replace_permissions(access, catalog):
    permit(catalog, "", "^q", "")
    catalog.apply(catalog.plan_topic_permission("/", "u", "amq.topic", ".*", ".*"))
    assert not may(access, Identity("u", []), WRITE, AN_EXCHANGE, "amq.topic", "a")


@pytest.mark.parametrize("template", ["^{client_id}\\.", "^%c\\."])
@pytest.mark.parametrize("client_id", [".*", "+", "#", "-", "%u", "%c", "{username}", "{client_id}", "/", "", "|", ".*|.", "(?i)", "\\"])
def test_a_client_id_is_never_a_pattern(access, catalog, template, client_id):
    permit(catalog)
    catalog.apply(catalog.plan_topic_permission("/", "u", "amq.topic", template, template))
    somebody = Identity("u", [], client_id)
    for action in (WRITE, READ):
        assert may(access, somebody, action, AN_EXCHANGE, "amq.topic", f"{client_id}.x")
        for other in ("victim.x", "u.x", "anything"):
            assert not may(access, somebody, action, AN_EXCHANGE, "amq.topic", other)


@settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(st.text(max_size=10), st.text(max_size=10))
def test_nobody_gets_into_anothers_space(client_id, other):
    catalog = Catalog()
    catalog.apply(catalog.plan_vhost("/"))
    catalog.apply(catalog.plan_user("u", HASH, ARGON2ID, []))
    permit(catalog)
    catalog.apply(catalog.plan_topic_permission("/", "u", "amq.topic", "^{vhost}{username}{client_id}$", ""))
    access = Access(catalog, AccessSettings(), Clock(), b"s")
    assert may(access, Identity("u", [], client_id), WRITE, AN_EXCHANGE, "amq.topic", f"/u{client_id}")
    assert may(access, Identity("u", [], client_id), WRITE, AN_EXCHANGE, "amq.topic", f"/u{other}") == (client_id == other)


def test_an_endless_client_id_is_allowed_nothing(access, catalog):
    permit(catalog)
    catalog.apply(catalog.plan_topic_permission("/", "u", "amq.topic", "{client_id}|.*", ""))
    assert may(access, Identity("u", [], "c" * 1_000), WRITE, AN_EXCHANGE, "amq.topic", "x")
    assert not may(access, Identity("u", [], "c" * 65_535), WRITE, AN_EXCHANGE, "amq.topic", "x")
