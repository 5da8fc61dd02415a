"""Exact draws, by a stand-in for OpenDP that says what it was asked for."""

import importlib.util
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from zerosum.client.privacy import opendp
from zerosum.client.privacy.discrete_gaussian import DistributedDiscreteGaussian
from zerosum.client.privacy.laplace import DiscreteLaplace
from zerosum.secagg.randomness import insecure_keystream


@pytest.fixture
def asked(monkeypatch):
    """Install the stand-in; return the measurements that are built."""
    built: list[tuple] = []

    def make(law):
        def measurement(domain, metric, scale):
            built.append((law, domain, metric, scale))
            return lambda zeros: [7] * len(zeros)

        return measurement

    prelude = SimpleNamespace(
        enable_features=lambda name: built.append(("features", name)),
        atom_domain=lambda T: f"atom {T}",
        vector_domain=lambda atom: f"vector of {atom}",
        l1_distance=lambda T: f"l1 {T}",
        l2_distance=lambda T: f"l2 {T}",
        m=SimpleNamespace(make_gaussian=make("gaussian"), make_laplace=make("laplace")),
    )
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "opendp", SimpleNamespace(prelude=prelude))
    monkeypatch.setitem(sys.modules, "opendp.prelude", prelude)
    caches = (opendp._opendp, opendp._gaussian, opendp._laplace)
    for cache in caches:
        cache.cache_clear()
    yield built
    for cache in caches:
        cache.cache_clear()


def test_exact_mechanisms_draw_integers_by_opendp(asked):
    rng, zero = insecure_keystream(1, "noise"), np.zeros(5, dtype=np.int64)
    gaussian = DistributedDiscreteGaussian(1.0, 1.0, 4.0, 5, exact=True)
    assert (gaussian.apply(zero, rng) == 7).all()
    assert (gaussian.noise(3, 5, rng) == 21).all()
    laplace = DiscreteLaplace(9.0, 1, exact=True)
    assert (laplace.apply(zero, rng) == 7).all()
    assert asked == [
        ("features", "contrib"),
        ("gaussian", "vector of atom i64", "l2 f64", 4.0),
        ("laplace", "vector of atom i64", "l1 i64", 9.0),
    ]
    for mechanism in (gaussian, laplace):
        assert (mechanism.drawn, mechanism.tau) == ("exact", 0.0)


def test_long_vectors_are_not_drawn_exactly(asked):
    opendp.check_available(1 << 17)
    with pytest.raises(opendp.ExactUnavailableError, match="131,072"):
        opendp.check_available(1 << 18)
