"""Costs of imports: a client that only masks must not pay for torch."""

import subprocess
import sys

import pytest

LOADED = "import sys; import {module}; print(*sorted({{m.split('.')[0] for m in sys.modules}}))"


def packages_after(module):
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(module=module)],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


@pytest.mark.slow
@pytest.mark.parametrize(
    "module",
    ["zerosum.client", "zerosum.client.flower.client_app", "zerosum.client.flower.private_mod"],
)
def test_a_deployed_client_starts_without_torch(module):
    heavy = {"torch", "dp_accounting", "scipy", "pandas", "sklearn", "matplotlib"}
    assert not packages_after(module) & heavy


def test_secure_sums_need_numpy_and_cryptography_alone():
    allowed = {"zerosum", "numpy", "cryptography", "_cffi_backend", "cython_runtime"}
    third_party = packages_after("zerosum.secagg") - set(sys.stdlib_module_names)
    private = {name for name in third_party if name.startswith(("_", "sitecustomize"))}
    assert third_party - private - packages_after("sys") <= allowed
