from __future__ import annotations

import pytest

from trilogue.secrecy import HIDDEN, hidden


@pytest.mark.parametrize("name", ["password", "db_passwd", "Authorization", "client_secret", "access_token", "apikey", "api_key", "Set-Cookie"])
def test_telling_names(name: str) -> None:
    assert hidden(name, "canary") == HIDDEN
    assert hidden(name, b"canary") == HIDDEN


def test_nested_values_and_urls() -> None:
    value = {"a": [{"password": "canary"}, "amqp://u:canary@h/v"], "b": ("redis://:canary@h",), "n": 7}
    assert hidden("", value) == {"a": [{"password": HIDDEN}, f"amqp://u:{HIDDEN}@h/v"], "b": [f"redis://:{HIDDEN}@h"], "n": 7}


def test_what_is_no_secret_stays() -> None:
    assert hidden("queue", "amqp://host:5672/v") == "amqp://host:5672/v"
    assert hidden("connection", "127.0.0.1:5672") == "127.0.0.1:5672"
