import base64
import hashlib

import pytest

from trilogue.core.passwords import ARGON2ID, NOBODY, PASSWORD_BYTES_MAX, SHA256, SHA512, hash_password, outdated, verify


def salted(digest, password, salt=b"\x90\x8d\xc6\x0a"):
    return base64.b64encode(salt + hashlib.new(digest, salt + password.encode()).digest()).decode()


def test_argon2id_with_the_agreed_cost():
    made = hash_password("secret")
    assert made.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert verify(ARGON2ID, made, "secret")
    assert not verify(ARGON2ID, made, "Secret")
    assert not outdated(ARGON2ID, made)
    assert hash_password("secret") != made


def test_nobody_costs_the_same():
    assert not outdated(ARGON2ID, NOBODY)
    assert not verify(ARGON2ID, NOBODY, "guest")


def test_a_documented_hash_of_rabbitmq():
    # From RabbitMQ's guide on passwords: "test12" with the salt 908DC60A.
    assert verify(SHA256, "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR", "test12")


@pytest.mark.parametrize(("algorithm", "digest"), [(SHA256, "sha256"), (SHA512, "sha512")])
def test_hashes_of_rabbitmq(algorithm, digest):
    assert verify(algorithm, salted(digest, "päss"), "päss")
    assert not verify(algorithm, salted(digest, "päss"), "pass")
    assert outdated(algorithm, salted(digest, "päss"))


@pytest.mark.parametrize("stored", ["", "?", "$argon2id$", "AAAA", "kI3G", "é"])
@pytest.mark.parametrize("algorithm", [ARGON2ID, SHA256, SHA512, "md5", ""])
def test_an_unreadable_hash_opens_nothing(algorithm, stored):
    assert not verify(algorithm, stored, "secret")
    assert outdated(algorithm, stored)


def test_empty_and_endless_passwords_never_fit():
    assert not verify(SHA256, salted("sha256", ""), "")
    long = "x" * (PASSWORD_BYTES_MAX + 1)
    assert not verify(SHA256, salted("sha256", long), long)
    assert verify(SHA256, salted("sha256", long[1:]), long[1:])
    assert not verify(ARGON2ID, NOBODY, "\ud800")
