"""A ledger's memory of many rounds: compact, and equal to a new count."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from zerosum.client.protocol.protection import Protection
from zerosum.client.spec import EncodingSpec, PrivacySpec, SecAggSpec
from zerosum.server.privacy.run_ledger import RunLedger
from zerosum.server.runs.run_folder import LEDGER, RunFolder
from zerosum.server.spec import SamplingSpec

PRIVACY = PrivacySpec(noise_multiplier=2.1, honest_fraction=0.8, delta=1e-4)
KINDS = ("train", "evaluate")


def ledger(population: int, path: Path | None = None) -> RunLedger:
    protection = Protection.build(
        PRIVACY, EncodingSpec(), cohort=100, dimension=1000, rotation_seed=bytes(32)
    )
    return RunLedger(
        path,
        privacy=PRIVACY,
        secagg=SecAggSpec(dropout=0.1),
        sampling=SamplingSpec(kind="fixed", cohort=10),
        population=population,
        protections=dict.fromkeys(KINDS, protection),
    )


def exceeded_by_none(counts: np.ndarray, sizes: np.ndarray) -> list[tuple[tuple[int, int], ...]]:
    """Compare every client with every other."""
    rows = {tuple(row) for row in np.concatenate([counts, sizes]).T.tolist() if any(row)}
    best = [
        row
        for row in rows
        if not any(
            other != row and all(a >= b for a, b in zip(other, row, strict=True)) for other in rows
        )
    ]
    return [((a, c), (b, d)) for a, b, c, d in sorted(best, reverse=True)]


@pytest.mark.parametrize("seed", range(5))
def test_the_worst_clients_are_those_of_all_that_were_ever_asked(tmp_path: Path, seed: int) -> None:
    generator = np.random.default_rng(seed)
    book = ledger(30, tmp_path / "ledger.jsonl")
    counts, sizes = np.zeros((2, 2, 30), dtype=np.int64)
    seen = set()
    for number in range(40):
        kind, size = int(generator.integers(2)), int(generator.integers(1, 12))
        asked = generator.choice(30, size, replace=False)
        book.charge_contributions((number, 0, KINDS[kind], 0), asked.tolist(), cohort=size)
        counts[kind, asked] += 1
        sizes[kind, asked] += size
        expected = exceeded_by_none(counts, sizes)
        assert list(book.tally().worst) == expected
        seen.add(len(expected))
    assert max(seen) > 2  # or one client would be the answer to everything
    assert ledger(30, tmp_path / "ledger.jsonl").tally() == book.tally()


def test_a_participation_takes_a_few_bytes() -> None:
    book = ledger(5000)
    book.charge_contributions((1, 0, "train", 0), range(1000), cohort=2000)
    book.charge_contributions((1, 0, "train", 0), range(500, 2000), cohort=2000)
    _, clients = book._counts._contributions[1, 0, "train", 0]
    assert clients.tolist() == list(range(2000))
    assert clients.nbytes == 8000
    assert book.participations().tolist() == [1] * 2000 + [0] * 3000


def test_the_fingerprint_is_of_the_whole_file_whatever_happened_to_it(tmp_path: Path) -> None:
    folder, path = RunFolder(tmp_path), tmp_path / LEDGER

    def check() -> None:
        data = path.read_bytes() if path.exists() else b""
        expected = len(data), hashlib.sha256(data).hexdigest()
        assert folder.fingerprint(LEDGER) == folder.fingerprint(LEDGER) == expected

    check()
    for number in range(3):
        folder.append_line(LEDGER, {"number": number})
        check()
    folder.write(LEDGER, b"another beginning\n")
    check()
    folder.append_line(LEDGER, {"number": 3})
    check()
    path.write_bytes(path.read_bytes()[:5])
    check()
    path.unlink()
    check()
