"""Password hashes: made with argon2id, and read also as RabbitMQ exports them. Everything here takes milliseconds: not for the event loop.

RabbitMQ's hashes are base64 of a 4-byte salt followed by the digest of salt and password.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

ARGON2ID: Final = "argon2id"
SHA256: Final = "rabbit_password_hashing_sha256"
SHA512: Final = "rabbit_password_hashing_sha512"
ALGORITHMS: Final = [ARGON2ID, SHA256, SHA512]

MEMORY_KIB: Final = 19 * 1024
PASSES: Final = 2
LANES: Final = 1
SALT_BYTES: Final = 4               # RabbitMQ's
PASSWORD_BYTES_MAX: Final = 4_096

# Nobody's password, with the same cost: what an unknown user is checked against, so that time does not tell who exists.
NOBODY: Final = "$argon2id$v=19$m=19456,t=2,p=1$QO4Vx4JLgI1fcH2tGcwnUg$TM9VUMZmNGVpYrAE0jZrsKp/UkTR35FynMsghKo3F1w"

_hasher: Final = PasswordHasher(time_cost=PASSES, memory_cost=MEMORY_KIB, parallelism=LANES)


def hash_password(password: str) -> str:
    """A fresh salt, so two hashes of one password differ."""
    return _hasher.hash(password)


def verify(algorithm: str, stored: str, password: str) -> bool:
    """False, too, for a hash that cannot be read: such a user cannot log in."""
    if not password or len(password) > PASSWORD_BYTES_MAX:
        return False
    if algorithm == ARGON2ID:
        return verify_argon2(stored, password)
    if algorithm == SHA256:
        return verify_salted("sha256", stored, password)
    if algorithm == SHA512:
        return verify_salted("sha512", stored, password)
    return False


def verify_argon2(stored: str, password: str) -> bool:
    try:
        return _hasher.verify(stored, password)
    except (VerificationError, InvalidHashError, UnicodeEncodeError):
        return False


def verify_salted(digest: str, stored: str, password: str) -> bool:
    try:
        raw = base64.b64decode(stored, validate=True)
    except (binascii.Error, ValueError):
        return False
    made = hashlib.new(digest, raw[:SALT_BYTES] + password.encode("utf-8", "surrogatepass")).digest()
    return len(raw) > SALT_BYTES and hmac.compare_digest(made, raw[SALT_BYTES:])


def outdated(algorithm: str, stored: str) -> bool:
    """Should the hash be made anew at the next successful login?"""
    if algorithm != ARGON2ID:
        return True
    try:
        return _hasher.check_needs_rehash(stored)
    except InvalidHashError:
        return True
