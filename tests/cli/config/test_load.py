"""From layers to a configuration: what holds without a file, what wins over what, and every kind of mistake with its place."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence

import pytest

from trilogue.config.load import Loaded, load
from trilogue.config.model import AUTO, Config
from trilogue.config.option import Address
from trilogue.config.problems import ConfigError


def loaded(
    tmp_path: pathlib.Path, text: str, environ: Mapping[str, str] | None = None, arguments: Sequence[str] = (), frontends: Sequence[str] = ()
) -> Loaded:
    file = tmp_path / "t.toml"
    file.write_text(text)
    return load(file, environ, arguments, frontends)


def mistakes(tmp_path: pathlib.Path, text: str, environ: Mapping[str, str] | None = None, arguments: Sequence[str] = ()) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text, environ, arguments)
    return [str(problem).removeprefix(f"{tmp_path}/") for problem in caught.value.problems]


# ------------------------------------------------------------------------------------------------ without mistakes

def test_without_a_file() -> None:
    config = load().config
    assert {name: str(listener.bind) for name, listener in config.listeners.items()} == {
        "amqp": "127.0.0.1:5672", "mqtt": "127.0.0.1:1883", "stomp": "127.0.0.1:61613", "http": "127.0.0.1:15672", "native": "127.0.0.1:7672"}
    assert all(listener.frontend == name for name, listener in config.listeners.items())
    assert config.coordination.kind == "local"
    assert config.auth.guest
    assert config.auth.anonymous == "loopback"
    assert config.storage.durability == "fsync"
    assert config.storage.disk_low_bytes == AUTO


def test_a_file_without_listeners_keeps_the_defaults(tmp_path: pathlib.Path) -> None:
    result = loaded(tmp_path, "[node]\nid = 'x'\n")
    assert len(result.config.listeners) == 5
    assert result.origin(("listeners", "amqp", "bind")) == "default"


def test_a_file_with_listeners_has_only_those(tmp_path: pathlib.Path) -> None:
    config = loaded(tmp_path, "[listeners.amqp]\nbind = '[::1]:0'\n[listeners.mqtt]\n[listeners.stomp]\nbind = ''\n").config
    assert {name: listener.bind for name, listener in config.listeners.items()} == {"amqp": Address("::1", 0)}
    assert str(config.listeners["amqp"].bind) == "[::1]:0"


def test_a_second_listener_of_a_frontend(tmp_path: pathlib.Path) -> None:
    config = loaded(tmp_path, "[listeners.inside]\nbind = '127.0.0.1:1'\nfrontend = 'amqp'\nvhost = 'v'\noptions = {a = 1}\n").config
    assert config.listeners["inside"].frontend == "amqp"
    assert config.listeners["inside"].options == {"a": 1}


def test_an_installed_frontend_can_be_listened_for(tmp_path: pathlib.Path) -> None:
    config = loaded(tmp_path, "[listeners.line]\nbind = '127.0.0.1:1'\n", frontends=["line"]).config
    assert config.listeners["line"].frontend == "line"


def test_later_layers_win_and_each_value_knows_its_origin(tmp_path: pathlib.Path) -> None:
    text = "[storage]\nshards = 5\nsegment_bytes = 2000000\nunsynced_bytes_max = '32 MiB'\n[limits]\nmessage_bytes_max = '1 MiB'\n"
    environ = {"TRILOGUE_STORAGE__SHARDS": "6", "TRILOGUE_STORAGE__SEGMENT_BYTES": "3_000_000", "HOME": "x", "TRILOGUE_PURE": "1"}
    result = loaded(tmp_path, text, environ, ["storage.shards = 7"])
    assert (result.config.storage.shards, result.config.storage.segment_bytes) == (7, 3_000_000)
    assert result.config.storage.unsynced_bytes_max == 32 * 1024 * 1024
    assert result.origin(("storage", "shards")) == "--set storage.shards"
    assert result.origin(("storage", "segment_bytes")) == "environment TRILOGUE_STORAGE__SEGMENT_BYTES"
    assert result.origin(("storage", "unsynced_bytes_max")) == f"{tmp_path}/t.toml:4:1"
    assert result.origin(("storage", "durability")) == "default"


def test_environment_and_arguments_change_single_default_listeners() -> None:
    config = load(None, {"TRILOGUE_LISTENERS__AMQP__BIND": "127.0.0.1:0"}, ["listeners.mqtt.bind="]).config
    assert config.listeners["amqp"].bind == Address("127.0.0.1", 0)
    assert "mqtt" not in config.listeners
    assert len(config.listeners) == 4


@pytest.mark.parametrize(("argument", "value"), [("node.id=7", "7"), ("node.id=true", "true"), ("node.id='a'", "a"), ("node.id=a-b", "a-b")])
def test_text_from_arguments_is_taken_as_it_stands(argument: str, value: str) -> None:
    assert load(None, {}, [argument]).config.node.id == value


@pytest.mark.parametrize("hosts", ['["a:1", "b:2"]', "a:1,b:2", "a:1, b:2"])
def test_lists_from_arguments(hosts: str) -> None:
    assert load(None, {}, [f"coordination.hosts={hosts}"]).config.coordination.hosts == ("a:1", "b:2")


def test_values_of_other_types_from_arguments() -> None:
    arguments = ["auth.guest=false", "storage.disk_low_bytes=10 GiB", "storage.topic_retention_ms=unlimited", "limits.connections_max=0x10"]
    config = load(None, {}, arguments).config
    assert config.auth.guest is False
    assert config.storage.disk_low_bytes == 10 * 1024**3
    assert config.storage.topic_retention_ms == -1
    assert config.limits.connections_max == 16


def test_relative_paths_start_where_they_were_written(tmp_path: pathlib.Path) -> None:
    assert loaded(tmp_path, "[node]\ndata_dir = 'd'\n").config.node.data_dir == str(tmp_path / "d")
    assert loaded(tmp_path, "[node]\ndata_dir = 'd'\n", {}, ["node.data_dir=e"]).config.node.data_dir == "e"
    assert load().config.node.data_dir == "data"


def test_a_configuration_is_complete_and_frozen() -> None:
    assert load(None, {}, ["listeners={}"]).config.storage == Config().storage
    with pytest.raises(AttributeError):
        load().config.storage.shards = 9        # type: ignore[misc]


def test_secrets_are_not_in_the_representation() -> None:
    config = load(None, {}, ['users=[{name="u", password="canary"}]', "coordination.auth=digest:canary"]).config
    assert config.users[0].password == "canary"
    assert "canary" not in repr(config)


# ------------------------------------------------------------------------------------------------ mistakes

def test_five_different_mistakes_at_once(tmp_path: pathlib.Path) -> None:
    text = """\
[node]
data_dri = "x"

[storage]
segment_bytes = "large"
shards = 1000
durability = "fsink"

[listeners.amqp]
bind = "5672"
"""
    assert mistakes(tmp_path, text) == [
        "t.toml:2:1: node.data_dri: is not an option of node (did you mean data_dir?)",
        "t.toml:5:17: storage.segment_bytes: must be a whole number (bytes) or text like 64 MiB, not text",
        "t.toml:6:10: storage.shards: 1000 is out of range (1 to 256)",
        't.toml:7:14: storage.durability: "fsink" is not one of "fsync", "os" (did you mean fsync?)',
        't.toml:10:8: listeners.amqp.bind: "5672" is not host:port ("127.0.0.1:5672")',
    ]


def test_syntax_errors_do_not_hide_the_others(tmp_path: pathlib.Path) -> None:
    text = "[storage]\nshards = = 3\nshardz = 4\n[auth\nguest = 7\n[limits]\nmessage_bytes_max = 2\nmessage_bytes_max = 3\n"
    assert mistakes(tmp_path, text) == [
        "t.toml:2:10: invalid value",
        "t.toml:3:1: storage.shardz: is not an option of storage (did you mean shards?)",
        "t.toml:4:6: expected ']' at the end of a table declaration",
        "t.toml:7:21: limits.message_bytes_max: 2 is out of range (1024 to 536870912 bytes)",
        "t.toml:8:1: limits.message_bytes_max: is defined twice",
    ]


@pytest.mark.parametrize(("text", "expected"), [
    ("[auth]\n[node]\n[auth]\nguest = 1\n", ["t.toml:3:2: auth: is defined twice"]),
    ("a = '''\n", ["t.toml:2:1: expected \"'''\"; something begun before is not ended"]),
    ("[node]\nid = 'a'\nid.x = 'b'\n", ["t.toml:3:1: node.id.x: is defined twice"]),
    ("listeners = {amqp = {bind = 'h:1', bind = 'h:2'}}\n", ["t.toml:1:36: listeners.amqp.bind: is defined twice"]),
])
def test_syntax_errors(tmp_path: pathlib.Path, text: str, expected: list[str]) -> None:
    assert mistakes(tmp_path, text) == expected


@pytest.mark.parametrize(("text", "expected"), [
    ("strage = 1\n", "t.toml:1:1: strage: is not an option (did you mean storage?)"),
    ("storage = 1\n", "t.toml:1:11: storage: must be a table, not a number"),
    ("listeners = []\n", "t.toml:1:13: listeners: must be a table of tables, not a list"),
    ("users = {}\n", "t.toml:1:9: users: must be a list of tables ([[users]]), not a table"),
    ("users = [1]\n", "t.toml:1:10: users[0]: must be a table, not a number"),
    ("[auth]\nguest = 'yes'\n", "t.toml:2:9: auth.guest: must be true or false, not text"),
    ("[node]\nid = 1.5\n", "t.toml:2:6: node.id: must be text, not a fraction"),
    ("[node]\nid = ''\n",
     "t.toml:2:6: node.id: may have letters, digits, dots, dashes and underscores, at most 64, and begins with a letter or digit"),
    ("[node]\nrack = 1979-05-27\n", "t.toml:2:8: node.rack: must be text, not a date or time"),
    ("[node]\nrack = \"a\\u0000\"\n", "t.toml:2:8: node.rack: must not contain NUL"),
    ("[storage]\nshards = true\n", "t.toml:2:10: storage.shards: must be a whole number, not true or false"),
    ("[storage]\ndisk_low_bytes = 'atuo'\n",
     't.toml:2:18: storage.disk_low_bytes: must be a whole number (bytes) or text like 64 MiB or "auto", not text (did you mean auto?)'),
    ("[storage]\ncheckpoint_interval_ms = '5 MiB'\n",
     "t.toml:2:26: storage.checkpoint_interval_ms: must be a whole number (ms) or text like 30 s, not text"),
    ("[storage]\ntopic_retention_ms = 0\n", 't.toml:2:22: storage.topic_retention_ms: 0 is out of range (at least 1000 ms or "unlimited")'),
    ("[coordination]\nhosts = 7\n", "t.toml:2:9: coordination.hosts: must be a list of texts, not a number"),
    ("[coordination]\nhosts = ['a:1', 7]\n", "t.toml:2:17: coordination.hosts[1]: must be text, not a number"),
    ("[coordination]\nhosts = ['a']\n", 't.toml:2:10: coordination.hosts[0]: "a" is not host:port'),
    ("[coordination]\npath = 'x'\n", "t.toml:2:8: coordination.path: must begin with /"),
    ("[coordination]\nkind = 'zookeeper'\nhosts = ['a:1']\n[listeners.replication]\n",
     't.toml:2:8: coordination.kind: "zookeeper" needs listeners.replication.bind, where the other nodes connect'),
    ("[coordination]\nkind = 'zookeeper'\n[listeners.replication]\nbind = 'h:1'\n",
     't.toml:2:8: coordination.kind: "zookeeper" needs coordination.hosts (for example hosts = ["127.0.0.1:2181"])'),
    ("[listeners.ampq]\nbind = 'h:1'\n", "t.toml:1:12: listeners.ampq: is not the name of a frontend (did you mean amqp?)"),
    ("[listeners.amqp]\nbind = 'h:1'\nfrontend = 'nope'\n", 't.toml:3:12: listeners.amqp.frontend: there is no frontend "nope"'),
    ("[listeners.amqp]\nbind = 5672\n", 't.toml:2:8: listeners.amqp.bind: must be text like "127.0.0.1:5672", not a number ("127.0.0.1:5672")'),
    ("[listeners.amqp]\nbind = 'h:99999'\n", "t.toml:2:8: listeners.amqp.bind: port 99999 is out of range (0 to 65535; 0 takes a free one)"),
    ("[listeners.amqp]\nbind = '::1:5672'\n", 't.toml:2:8: listeners.amqp.bind: "::1:5672" is not host:port'),
    ("[listeners.amqp]\nbind = 'h:1'\n[listeners.mqtt]\nbind = 'h:1'\n", "t.toml:4:8: listeners.mqtt.bind: h:1 is taken by listeners.amqp"),
    ("[listeners.amqp]\nbind = 'h:1'\n[listeners.mqtt]\nbind = '0.0.0.0:1'\n",
     "t.toml:4:8: listeners.mqtt.bind: 0.0.0.0:1 is taken by listeners.amqp"),
    ("[storage]\nunsynced_bytes_max = '1 MiB'\n", "t.toml:2:22: storage.unsynced_bytes_max: 1048576 is less than limits.message_bytes_max, 16777216"),
    ("[auth]\nanonymous = 'always'\n",
     't.toml:2:13: auth.anonymous: "always" with anonymous_user "guest" would give everybody everything (name a user with few permissions)'),
])
def test_one_mistake(tmp_path: pathlib.Path, text: str, expected: str) -> None:
    assert mistakes(tmp_path, text) == [expected]


@pytest.mark.parametrize(("text", "expected"), [
    ("[[users]]\npassword = 'x'\n", "t.toml:1:3: users[0]: needs name"),
    ("[[users]]\nname = ''\n", "t.toml:2:8: users[0].name: must not be empty"),
    ("[[users]]\nname = 'a'\n[[users]]\nname = 'a'\n", "t.toml:3:3: users[1]: name 'a' is defined twice (also users[0])"),
    ("[[users]]\nname = 'a'\ntags = ['admin']\n",
     't.toml:3:9: users[0].tags[0]: "admin" is not one of "administrator", "monitoring", "policymaker", "management" (did you mean administrator?)'),
    ("[[users]]\nname = 'a'\npassword_hash = 'canary'\n",
     "t.toml:3:17: users[0].password_hash: is neither an argon2 hash nor base64 of a RabbitMQ hash (a password in clear goes into password)"),
    ("[[users]]\nname = 'a'\npassword = 'canary'\npassword_hash = '$argon2id$'\n", "t.toml:1:3: users[0]: has both password and password_hash"),
    ("[[permissions]]\nuser = 'a'\nread = '('\n", "t.toml:3:8: permissions[0].read: is not a regular expression that RE2 can run: missing ): ("),
    ("[[queues]]\nname = 'q'\narguments = {x = 1979-05-27}\n", "t.toml:3:18: queues[0].arguments.x: cannot be a date or time here"),
    ("[[topics]]\nname = 't'\npartitions = 0\n", "t.toml:3:14: topics[0].partitions: 0 is out of range (1 to 10000)"),
    ("[[bindings]]\nsource = 's'\n", "t.toml:1:3: bindings[0]: needs destination"),
])
def test_one_mistake_in_a_definition(tmp_path: pathlib.Path, text: str, expected: str) -> None:
    assert mistakes(tmp_path, text) == [expected]


def test_tls_files_must_be_there(tmp_path: pathlib.Path) -> None:
    (tmp_path / "c").write_text("")
    text = "[listeners.amqp]\nbind = 'h:1'\n[listeners.amqp.tls]\ncert = 'c'\nkey = 'k'\nclient_cert = 'required'\n"
    assert mistakes(tmp_path, text) == [
        f"t.toml:5:7: listeners.amqp.tls.key: {tmp_path}/k is not a file",
        't.toml:6:15: listeners.amqp.tls.client_cert: "required" needs client_ca to check certificates against',
    ]


def test_mistakes_in_environment_and_arguments(tmp_path: pathlib.Path) -> None:
    environ = {"TRILOGUE_STORAGE__SHARDZ": "3", "TRILOGUE_STORAGE__SHARDS": "x"}
    assert mistakes(tmp_path, "", environ, ["x", "node.id.x=1", "auth.guest=maybe", "a b=1"]) == [
        "--set: x: is not of the form key=value",
        "--set: a b: is not of the form key=value",
        "--set auth.guest: auth.guest: must be true or false, not text",
        "--set node.id.x: node.id: must be text, not a table",
        "environment TRILOGUE_STORAGE__SHARDS: storage.shards: must be a whole number, not text",
        "environment TRILOGUE_STORAGE__SHARDZ: storage.shardz: is not an option of storage (did you mean shards?)",
    ]


def test_files_that_cannot_be_read(tmp_path: pathlib.Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load(tmp_path / "missing.toml")
    (tmp_path / "t.toml").write_bytes(b"# fine\na = '\xff'\n")
    with pytest.raises(ConfigError, match=r"t\.toml:2:6: is not UTF-8"):
        load(tmp_path / "t.toml")
    (tmp_path / "t.toml").write_bytes(b"a = " + b"[" * 100_000)
    with pytest.raises(ConfigError, match="nested too deeply"):
        load(tmp_path / "t.toml")
    (tmp_path / "t.toml").write_bytes(b"#" * 5_000_000)
    with pytest.raises(ConfigError, match="hardly a configuration"):
        load(tmp_path / "t.toml")


def test_windows_line_ends(tmp_path: pathlib.Path) -> None:
    (tmp_path / "t.toml").write_bytes(b"[node]\r\nid = 'a'\r\nx = 1\r\n")
    with pytest.raises(ConfigError, match=r"t\.toml:3:1: node\.x"):
        load(tmp_path / "t.toml")


def test_plugins_are_frontends_too(tmp_path: pathlib.Path) -> None:
    text = "[node]\nplugins = ['line=package.module:Class']\n[listeners.line]\nbind = '127.0.0.1:1'\n"
    assert list(loaded(tmp_path, text).config.listeners) == ["line"]
    with pytest.raises(ConfigError, match=r'node.plugins\[0\]: "line=package" is not name=package.module:Class'):
        loaded(tmp_path, "[node]\nplugins = ['line=package']\n")
