"""The page about AMQP names a test for each line. They must exist."""

from __future__ import annotations

import pathlib
import re

from tests.frontends.amqp.test_errors import MISTAKES

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[2]
PAGE = (ROOT / "docs" / "amqp.rst").read_text()


def test_every_line_names_a_test_that_exists() -> None:
    for row in PAGE.split("   * - ")[1:]:
        if "::" in row:
            for module, name in re.findall(r"``(test_\w+)::(test_\w+)``", row):
                assert re.search(rf"^def {name}\(", (HERE / f"{module}.py").read_text(), re.MULTILINE), f"{module}::{name}"
        for path in re.findall(r"``(tests/[\w/.]+)``", row):
            assert (ROOT / path).exists(), path


def test_every_feature_has_a_test() -> None:
    features = PAGE[:PAGE.index("\nErrors\n")]
    for row in features.split("   * - ")[1:]:
        assert row.startswith("feature") or "test_" in row, row


def test_every_mistake_is_on_the_page() -> None:
    errors = PAGE[PAGE.index("\nErrors\n"):]
    for name, _, connection, code, _ in MISTAKES:
        assert f"   * - {name}\n     - {'connection' if connection else 'channel'} {code}\n" in errors, name
