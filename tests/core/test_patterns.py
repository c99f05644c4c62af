import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trilogue.core.errors import InvalidArgument
from trilogue.core.patterns import PATTERN_BYTES_MAX, Pattern, check_pattern, filled


def test_a_pattern_is_searched_not_anchored():
    assert Pattern("b").finds("abc")
    assert not Pattern("^b$").finds("abc")


@pytest.mark.parametrize("source", ["(", "(?=a)", r"(a)\1", "a" * (PATTERN_BYTES_MAX + 1), "\ud800"])
def test_what_cannot_run_in_linear_time_is_refused(source):
    with pytest.raises(InvalidArgument):
        check_pattern(source)


def test_the_longest_pattern_is_taken():
    check_pattern("a" * PATTERN_BYTES_MAX)


def test_a_subject_without_meaning_matches_nothing():
    assert not Pattern(".*").finds("\ud800")


@pytest.mark.parametrize("client_id", [".*", "+", "#", "-", "%u", "%c", "{username}", "/", "a|b", "\\", "[^x]", "^", "$", "(?i)a", "é", "\n"])
def test_values_stand_for_themselves(client_id):
    pattern = Pattern(filled("^{client_id}/%c$", "user", "/", client_id))
    assert pattern.finds(f"{client_id}/{client_id}")
    assert not pattern.finds("user/user")
    assert not pattern.finds("anything/anything")


@settings(deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(max_size=12), st.text(max_size=12))
def test_any_value_matches_itself_and_no_other(value, other):
    for template in ("^{client_id}$", "^%c$", "^%u$", "^{username}$", "^{vhost}$"):
        pattern = Pattern(filled(template, value, value, value))
        assert pattern.finds(value)
        assert pattern.finds(other) == (other == value)


def test_braces_that_are_no_variable_stay():
    assert filled("a{2}{x}%", "u", "v", "c") == "a{2}{x}%"
