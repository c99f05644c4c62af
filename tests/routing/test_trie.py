"""The trie against a matcher that follows the definition, word by word, with backtracking."""

import gc

from hypothesis import given, settings
from hypothesis import strategies as st

from trilogue.routing.trie import SHARED_WORDS_MAX, Bag, Trie, amqp_trie, mqtt_trie

words = st.sampled_from(["a", "b", ""])
amqp_pattern = st.lists(words | st.sampled_from(["*", "#"]), max_size=6).map(".".join)
amqp_key = st.lists(words, max_size=6).map(".".join)
mqtt_topic = st.lists(words | st.just("$s"), min_size=1, max_size=5).map("/".join)
mqtt_filter = st.tuples(st.lists(words | st.sampled_from(["+", "$s"]), max_size=4), st.booleans()).map(
    lambda t: "/".join(t[0] + ["#"] if t[1] or not t[0] else t[0]))


def matches(pattern: list[str], topic: list[str], one: str) -> bool:
    if not pattern:
        return not topic
    if pattern[0] == "#":
        return matches(pattern[1:], topic, one) or (bool(topic) and matches(pattern, topic[1:], one))
    return bool(topic) and pattern[0] in (one, topic[0]) and matches(pattern[1:], topic[1:], one)


def amqp_matches(pattern: str, key: str) -> bool:
    return matches(pattern.split(".") if pattern else [], key.split(".") if key else [], "*")


def mqtt_matches(topic_filter: str, topic: str) -> bool:
    if topic.startswith("$") and topic_filter[:1] in ("+", "#"):
        return False
    return matches(topic_filter.split("/") if topic_filter else [], topic.split("/") if topic else [], "+")


def found(trie: Trie, topic: str) -> list[int]:
    out: list[int] = []
    trie.match(topic, out)
    return sorted(out)


@given(st.lists(amqp_pattern, max_size=12), amqp_key)
@settings(max_examples=400)
def test_amqp_patterns_match_by_definition(patterns: list[str], key: str) -> None:
    trie = amqp_trie()
    for number, pattern in enumerate(patterns):
        trie.add(pattern, number)
    assert found(trie, key) == [n for n, pattern in enumerate(patterns) if amqp_matches(pattern, key)]


@given(st.lists(mqtt_filter, max_size=12), mqtt_topic)
@settings(max_examples=400)
def test_mqtt_filters_match_by_definition(filters: list[str], topic: str) -> None:
    trie = mqtt_trie()
    for number, topic_filter in enumerate(filters):
        trie.add(topic_filter, number)
    assert found(trie, topic) == [n for n, topic_filter in enumerate(filters) if mqtt_matches(topic_filter, topic)]


@given(st.lists(st.tuples(st.booleans(), amqp_pattern, st.integers(0, 2)), max_size=40), amqp_key)
@settings(max_examples=300)
def test_any_history_leaves_exactly_what_was_not_removed(changes: list[tuple[bool, str, int]], key: str) -> None:
    trie = amqp_trie()
    kept: list[tuple[str, int]] = []
    for is_add, pattern, number in changes:
        if is_add:
            trie.add(pattern, number)
            kept.append((pattern, number))
        else:
            assert trie.remove(pattern, number) == ((pattern, number) in kept)
            if (pattern, number) in kept:
                kept.remove((pattern, number))
        assert trie.holds(pattern, number) == ((pattern, number) in kept)
    assert found(trie, key) == sorted(n for pattern, n in set(kept) if amqp_matches(pattern, key))
    assert len(trie.nodes()) == nodes_needed([pattern for pattern, _ in kept])


def nodes_needed(patterns: list[str]) -> int:
    paths: set[tuple[str, ...]] = {()}
    for pattern in patterns:
        path = tuple(pattern.split(".")) if pattern else ()
        paths.update(path[:n] for n in range(len(path) + 1))
    return len(paths)


def test_nothing_is_left_when_everything_is_removed() -> None:
    trie = amqp_trie()
    patterns = [f"a.{k % 7}.{k}.{'#' if k % 3 else '*'}" for k in range(500)]
    for number, pattern in enumerate(patterns):
        trie.add(pattern, number)
    for number, pattern in enumerate(patterns):
        assert trie.remove(pattern, number)
    root = trie.nodes()
    assert len(root) == 1
    assert root[0].is_unused()


def test_removing_what_is_not_there_changes_nothing() -> None:
    trie = mqtt_trie()
    trie.add("a/b", 1)
    assert not trie.remove("a", 1)
    assert not trie.remove("a/b", 2)
    assert not trie.remove("a/b/c", 1)
    assert not trie.remove("a/#", 1)
    assert found(trie, "a/b") == [1]


def test_the_same_twice_is_counted() -> None:
    trie = amqp_trie()
    trie.add("a.*", 1)
    trie.add("a.*", 1)
    assert trie.remove("a.*", 1)
    assert found(trie, "a.b") == [1]
    assert trie.remove("a.*", 1)
    assert found(trie, "a.b") == []


def test_empty_key_has_no_words() -> None:
    trie = amqp_trie()
    for number, pattern in enumerate(["", "#", "*", "#.#", "*.#"]):
        trie.add(pattern, number)
    assert found(trie, "") == [0, 1, 3]
    assert found(trie, ".") == [1, 3, 4]


def test_hash_matches_its_parent() -> None:
    trie = mqtt_trie()
    trie.add("a/#", 1)
    assert found(trie, "a") == [1]
    assert found(trie, "a/") == [1]
    assert found(trie, "ab") == []


def test_wildcards_at_the_first_level_do_not_see_dollar_topics() -> None:
    trie = mqtt_trie()
    for number, topic_filter in enumerate(["#", "+", "+/x", "$SYS/#", "$SYS/+", "$SYS", "a/+", "+/#"]):
        trie.add(topic_filter, number)
    assert found(trie, "$SYS/x") == [3, 4]
    assert found(trie, "$SYS") == [3, 5]
    assert found(trie, "a/$x") == [0, 6, 7]


def test_amqp_wildcards_see_dollar_keys() -> None:
    trie = amqp_trie()
    trie.add("#", 1)
    trie.add("*.x", 2)
    assert found(trie, "$SYS.x") == [1, 2]


def test_other_dialects_wildcards_are_words() -> None:
    trie = mqtt_trie()
    trie.add("a/*", 1)
    assert found(trie, "a/b") == []
    assert found(trie, "a/*") == [1]


def test_fifty_wildcards_on_a_thousand_levels_cost_no_more_than_their_sum() -> None:
    levels = 1_000
    for part in (["#"], ["#", "a"], ["#", "*"], ["#", "*", "a"], ["#", "a", "b"], ["*", "#", "a", "*"]):
        trie = amqp_trie()
        trie.add(".".join(part * 50), 7)
        nodes = len(trie.nodes())
        for topic in (["a"] * levels, ["b"] * levels, ["a", "b"] * (levels // 2)):
            found(trie, ".".join(topic))
            assert trie.visited <= nodes + len(part) * levels
    assert found(trie, ".".join(["a"] * levels)) == [7]


def test_a_wildcard_before_a_single_word_looks_at_the_last_word_alone() -> None:
    trie = amqp_trie()
    trie.add("#.error", 1)
    assert found(trie, ".".join(["error"] * 500)) == [1]
    assert found(trie, ".".join(["error"] * 500 + ["info"])) == []
    assert trie.visited <= 5


def test_a_wildcard_is_not_put_aside_while_a_fork_behind_it_still_matters() -> None:
    trie = amqp_trie()
    trie.add("#.a.c.#", 1)
    trie.add("#.a.*", 2)
    assert found(trie, "a.c.x.x.a.z") == [1, 2]
    assert found(trie, "a.c.x.x.a") == [1]


def test_many_patterns_with_many_wildcards_cost_at_most_words_times_nodes() -> None:
    trie = amqp_trie()
    for number in range(50):
        trie.add(".".join("#" if (number >> bit) & 1 else "ab*"[(number + bit) % 3] for bit in range(6)) + ".#.a.*.#.b" * 5, number)
    nodes = len(trie.nodes())
    topic = ["a", "b"] * 100
    found(trie, ".".join(topic))
    assert trie.visited <= nodes * (len(topic) + 1)


def test_the_number_of_filters_does_not_matter_to_a_match() -> None:
    trie = mqtt_trie()
    for number in range(20_000):
        trie.add(f"site/{number % 100}/device/{number}/status", number)
    trie.add("site/+/device/4711/#", 20_000)
    assert found(trie, "site/11/device/4711/status") == [4_711, 20_000]
    assert trie.visited <= 12


def test_a_branch_that_shrinks_to_one_child_still_finds_it() -> None:
    trie = mqtt_trie()
    for number, word in enumerate("abc"):
        trie.add(f"x/{word}", number)
    trie.remove("x/a", 0)
    trie.remove("x/c", 2)
    assert found(trie, "x/b") == [1]
    assert found(trie, "x/a") == []
    trie.add("x/a", 5)
    assert found(trie, "x/a") == [5]
    assert found(trie, "x/b") == [1]


def test_words_that_repeat_are_one_object_and_the_table_of_them_stays_small() -> None:
    trie = mqtt_trie()
    for number in range(SHARED_WORDS_MAX * 3):
        trie.add(f"{number}/name-{number}/status", number)
    assert len(trie.shared) <= SHARED_WORDS_MAX
    ends = {id(node.word) for node in trie.nodes() if node.word == "status"}
    assert len(ends) <= 8


def test_a_very_deep_filter_can_be_matched_removed_and_dropped() -> None:
    deep = "/" * 65_534
    trie = mqtt_trie()
    trie.add(deep, 1)
    assert found(trie, deep) == [1]
    assert trie.remove(deep, 1)
    assert len(trie.nodes()) == 1
    trie.add(deep, 1)
    del trie
    gc.collect()


def test_bag_counts() -> None:
    bag = Bag()
    assert bag.is_empty()
    assert not bag.remove(1)
    bag.add(1)
    bag.add(1)
    bag.add(2)
    assert bag.holds(1)
    assert bag.holds(2)
    assert not bag.holds(3)
    assert bag.remove(1)
    out: list[int] = []
    bag.collect(out)
    assert out == [1, 2]
    assert bag.remove(1)
    assert not bag.remove(1)
    assert bag.more is None
    assert bag.remove(2)
    assert bag.is_empty()


def test_bag_remembers_the_count_of_what_is_left_alone() -> None:
    bag = Bag()
    for destination in (1, 1, 2):
        bag.add(destination)
    assert bag.remove(2)
    assert bag.remove(1)
    assert bag.holds(1)
    assert bag.remove(1)
    assert bag.is_empty()
