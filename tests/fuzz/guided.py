"""The same readers guided by coverage: ``python tests/fuzz/guided.py -runs=100000`` with atheris.

The first byte of an input chooses the reader; checksums are made right, so that what follows them
is reached. Options are those of libFuzzer; without a corpus folder it starts from valid bytes.
"""

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["zerosum.secagg"]):
    from readers import targets

EVERY = list(targets())


def one_input(data: bytes) -> None:
    """Give an input to the reader that it names."""
    if data:
        target = EVERY[data[0] % len(EVERY)]
        target.read(target.repair(data[1:]))


def main() -> None:
    """Write valid bytes as a corpus, and fuzz."""
    with tempfile.TemporaryDirectory() as folder:
        for place, target in enumerate(EVERY):
            for number, seed in enumerate(target.seeds[:3]):
                (Path(folder) / f"{place}-{number}").write_bytes(bytes([place]) + seed)
        atheris.Setup([*sys.argv, folder], one_input)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
