import pytest

from trilogue.routing.hashing import crc32c, mix, partition_of


@pytest.mark.parametrize(("data", "crc"), [(b"", 0), (b"123456789", 0xE3069283), (bytes(32), 0x8A9136AA), (bytes(range(32)), 0x46DD794E)])
def test_published_vectors(data: bytes, crc: int) -> None:
    assert crc32c(data) == crc


def test_partition_is_the_crc_modulo_the_count() -> None:
    assert partition_of(b"123456789", 8) == 0xE3069283 % 8
    assert partition_of("grün".encode(), 5) == crc32c(b"gr\xc3\xbcn") % 5
    assert partition_of(b"anything", 1) == 0


def test_mix_is_one_to_one_and_stays_in_32_bits() -> None:
    mixed = {mix(n) for n in range(20_000)} | {mix(0xFFFFFFFF - n) for n in range(20_000)}
    assert len(mixed) == 40_000
    assert all(0 <= n <= 0xFFFFFFFF for n in mixed)


def test_mix_spreads_neighbours() -> None:
    buckets = [0] * 16
    for n in range(16_000):
        buckets[mix(n) >> 28] += 1
    assert min(buckets) > 850
    assert max(buckets) < 1_150
