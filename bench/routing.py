"""What a route costs: matching against 1 to 1,000,000 filters, memory per filter, and the patterns that ruin naive matchers.

    python bench/routing.py --filters 1 1000 10000 1000000

Prints one JSON object a line. Run it on the compiled build; `compiled` says which one it was.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time
from collections.abc import Callable, Iterator
from functools import partial

from trilogue.core.ports import TO_LIVE, TO_QUEUE
from trilogue.routing import trie
from trilogue.routing.exchange import SeededChance
from trilogue.routing.router import BindingRouter

MEASURES = ("temperature", "humidity", "pressure", "battery", "status")
COMPILED = not trie.__file__.endswith(".py")


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def filters(count: int) -> Iterator[str]:
    """A fleet: each device has a subscriber of one measure; every tenth subscriber wants all of a device, wherever it is."""
    for k in range(count):
        yield f"site/+/device/{k}/#" if k % 10 == 9 else f"site/{k % 100}/device/{k}/{MEASURES[k % 5]}"


def topics(count: int, wanted: int) -> list[bytes]:
    picked = ((n * 2_654_435_761) % count for n in range(wanted))
    return [f"site/{k % 100}/device/{k}/{MEASURES[k % 5]}".encode() for k in picked]


def router() -> BindingRouter:
    made = BindingRouter(SeededChance(bytes(8)))
    made.add_vhost("/")
    return made


def per_call_ns(call: Callable[[bytes], list[int]], inputs: list[bytes]) -> tuple[float, float]:
    """The mean, and the 99th percentile, over all inputs."""
    times = []
    for item in inputs:
        start = time.perf_counter_ns()
        call(item)
        times.append(time.perf_counter_ns() - start)
    times.sort()
    return sum(times) / len(times), float(times[len(times) * 99 // 100])


def each(grown: int, count: int) -> int | None:
    """Bytes per filter, where there are enough for the process to have grown: a few fit into what earlier cases left free."""
    return round(grown / count) if count >= 100_000 else None


def report(name: str, **figures: object) -> None:
    print(json.dumps({"bench": name, "compiled": COMPILED, **figures}), flush=True)


def subscriptions(count: int, matches: int) -> None:
    gc.collect()
    before = resident_bytes()
    target = router()
    start = time.perf_counter()
    for k, topic_filter in enumerate(filters(count)):
        target.subscribe("/", topic_filter, k << 2 | TO_LIVE)
    built = time.perf_counter() - start
    gc.collect()
    grown = resident_bytes() - before
    mean, p99 = per_call_ns(lambda topic: target.route_topic("/", topic), topics(count, matches))
    report("subscriptions", filters=count, match_ns=round(mean), match_p99_ns=round(p99), add_ns=round(built / count * 1e9),
           bytes_per_filter=each(grown, count))


def bindings(count: int, matches: int) -> None:
    gc.collect()
    before = resident_bytes()
    target = router()
    target.add_exchange("/", "amq.topic", "topic", {})
    start = time.perf_counter()
    for k, topic_filter in enumerate(filters(count)):
        target.bind("/", "amq.topic", k << 2 | TO_QUEUE, topic_filter.replace("/", ".").replace("+", "*"), {})
    built = time.perf_counter() - start
    gc.collect()
    grown = resident_bytes() - before
    keys = [topic.replace(b"/", b".") for topic in topics(count, matches)]
    mean, p99 = per_call_ns(lambda key: target.route("/", "amq.topic", key, {}), keys)
    report("bindings", filters=count, match_ns=round(mean), match_p99_ns=round(p99), add_ns=round(built / count * 1e9),
           bytes_per_filter=each(grown, count))


def many_wildcards(levels: int) -> None:
    target = router()
    for name, pattern in (("#.#", ["#"] * 50), ("#.a", ["#", "a"] * 50), ("#.*", ["#", "*"] * 50), ("#.*.*", ["#", "*", "*"] * 50)):
        target.add_exchange("/", name, "topic", {})
        target.bind("/", name, 4 << 2 | TO_QUEUE, ".".join(pattern), {})
    key = ".".join(["a"] * levels).encode()
    for name in ("#.#", "#.a", "#.*", "#.*.*"):
        mean, p99 = per_call_ns(partial(target.route, "/", name, headers={}), [key] * 100)
        report("many_wildcards", repeated=name, times=50, levels=levels, match_ns=round(mean), match_p99_ns=round(p99))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--filters", type=int, nargs="*", default=[1, 1_000, 10_000, 1_000_000], help="how many filters to match against")
    parser.add_argument("--matches", type=int, default=50_000, help="how many topics to match in each case")
    parser.add_argument("--levels", type=int, default=1_000, help="levels of the topic for patterns with 50 wildcards")
    options = parser.parse_args()
    many_wildcards(options.levels)
    for count in options.filters:
        subscriptions(count, options.matches)
        bindings(count, options.matches)


if __name__ == "__main__":
    main()
