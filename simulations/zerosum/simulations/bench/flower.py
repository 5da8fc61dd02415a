"""The client work of Flower's SecAgg+, by Flower's own functions.

One client goes through the four stages of ``secaggplus_mod`` with as many neighbours, as high a
threshold and as long a vector as ours; its neighbours' keys and envelopes are made beforehand and
not measured, nor is the quantisation of the vector, which our protocol's client is spared too.
What would not finish within the time limit is measured with fewer neighbours and extrapolated.
"""

from typing import Any

import numpy as np
from flwr.app import ConfigRecord
from flwr.client.mod.secure_aggregation.secaggplus_mod import (
    SecAggPlusState,
    _collect_masked_vectors,
    _setup,
    _share_keys,
    _unmask,
)
from flwr.common import ndarrays_to_parameters
from flwr.common.secure_aggregation.crypto.symmetric_encryption import (
    encrypt,
    generate_shared_key,
)
from flwr.common.secure_aggregation.ndarrays_arithmetic import factor_combine, parameters_multiply
from flwr.common.secure_aggregation.quantization import quantize
from flwr.common.secure_aggregation.secaggplus_constants import Key
from flwr.common.secure_aggregation.secaggplus_utils import share_keys_plaintext_concat
from flwr.supercore.primitives.asymmetric import (
    bytes_to_private_key,
    bytes_to_public_key,
    generate_key_pairs,
    private_key_to_bytes,
    public_key_to_bytes,
)

from zerosum.secagg.stages import Stage
from zerosum.simulations.bench.process import Values, peak_memory_mb, timed

_TRIAL = 8
_OWN = 1


def run(*, degree: int, d: int, threshold: int, bits: int = 16, time_limit: float = 60.0) -> Values:
    """Run one client of SecAgg+ and return what each stage took.

    Parameters
    ----------
    degree : int
        Neighbours, the client itself not counted.
    d : int
        Coordinates.
    threshold : int
        How many shares recover a secret.
    bits : int
        Bits of each value.
    time_limit : float
        Seconds that the client may take, by a trial with few neighbours.

    Returns
    -------
    dict
        ``client_cpu_s`` and its parts by stage; ``extrapolated`` tells whether they were
        measured at ``measured_degree`` and scaled: shares by neighbours times threshold, the
        rest by neighbours.
    """
    measured, measured_threshold = degree, threshold
    if degree > _TRIAL:
        trial_threshold = _scaled(threshold, degree, _TRIAL)
        trial = _client(_TRIAL, d, trial_threshold, bits)
        while measured > _TRIAL:
            factors = _factors(measured, measured_threshold, _TRIAL, trial_threshold)
            if sum(trial[name] * factors[name] for name in trial) <= time_limit:
                break
            measured = max(_TRIAL, measured * 3 // 4)
            measured_threshold = _scaled(threshold, degree, measured)
    parts = _client(measured, d, measured_threshold, bits)
    factors = _factors(degree, threshold, measured, measured_threshold)
    stages = {name: spent * factors[name] for name, spent in parts.items()}
    return {
        "degree": degree,
        "threshold": threshold,
        "d": d,
        "client_cpu_s": sum(stages.values()),
        "stages": stages,
        "extrapolated": measured != degree,
        "measured_degree": measured,
        "measured_client_cpu_s": sum(parts.values()),
        "peak_memory_mb": peak_memory_mb(),
    }


def _scaled(threshold: int, degree: int, fewer: int) -> int:
    return max(2, threshold * fewer // degree)


def _factors(
    degree: int, threshold: int, measured: int, measured_threshold: int
) -> dict[str, float]:
    neighbours = degree / measured
    shares = neighbours * threshold / measured_threshold
    return {
        "setup": 1.0,
        Stage.SHARE: shares,
        Stage.CONTRIBUTE: neighbours,
        Stage.UNMASK: neighbours,
    }


def _client(degree: int, d: int, threshold: int, bits: int) -> dict[str, float]:
    """Return the CPU seconds of each stage of one client."""
    state = SecAggPlusState()
    state.nid = _OWN
    spent: dict[str, float] = {}
    keys, spent["setup"] = timed(lambda: _setup(state, _settings(degree + 1, threshold, bits)))
    peers = {_OWN + 1 + i: (generate_key_pairs(), generate_key_pairs()) for i in range(degree)}
    public: Values = {
        str(nid): [public_key_to_bytes(pair[1]) for pair in pairs] for nid, pairs in peers.items()
    }
    public[str(_OWN)] = [keys[Key.PUBLIC_KEY_1], keys[Key.PUBLIC_KEY_2]]
    _, spent[Stage.SHARE] = timed(lambda: _share_keys(state, ConfigRecord(public)))
    envelopes = _envelopes(state, peers)
    weights = np.random.default_rng(0).uniform(-1, 1, d).astype(np.float32)
    parameters = ndarrays_to_parameters([weights])
    _, masking = timed(lambda: _collect_masked_vectors(state, envelopes, 1, parameters))
    _, quantising = timed(lambda: _quantise(state, weights))
    spent[Stage.CONTRIBUTE] = max(0.0, masking - quantising)
    everybody: Values = {Key.ACTIVE_NODE_ID_LIST: [_OWN, *peers], Key.DEAD_NODE_ID_LIST: []}
    _, spent[Stage.UNMASK] = timed(lambda: _unmask(state, ConfigRecord(everybody)))
    return spent


def _settings(count: int, threshold: int, bits: int) -> ConfigRecord:
    return ConfigRecord(
        {
            Key.SAMPLE_NUMBER: count,
            Key.SHARE_NUMBER: count,
            Key.THRESHOLD: threshold,
            Key.CLIPPING_RANGE: 1.0,
            Key.TARGET_RANGE: 1 << bits,
            Key.MOD_RANGE: 1 << 32,
            Key.MAX_WEIGHT: 1.0,
        }
    )


def _envelopes(state: SecAggPlusState, peers: dict[int, Any]) -> ConfigRecord:
    """Return what the neighbours sealed for the client: shares as long as its own."""
    share, key_share = state.rd_seed_share_dict[_OWN], state.sk1_share_dict[_OWN]
    own = bytes_to_public_key(state.pk2)
    sealed = []
    for nid, (_, (private, _)) in peers.items():
        key = generate_shared_key(bytes_to_private_key(private_key_to_bytes(private)), own)
        sealed.append(encrypt(key, share_keys_plaintext_concat(nid, _OWN, share, key_share)))
    return ConfigRecord({Key.CIPHERTEXT_LIST: sealed, Key.SOURCE_LIST: list(peers)})


def _quantise(state: SecAggPlusState, weights: np.ndarray) -> None:
    scaled = parameters_multiply([weights], 1.0)
    factor_combine(1, quantize(scaled, state.clipping_range, state.target_range))
