"""Say what an attack needs of a task, and which of it is missing: in a line for the user."""

from collections.abc import Callable, Mapping

from zerosum.simulations.attacks.harness.interface import Attack
from zerosum.simulations.attacks.inference.membership import LossThreshold
from zerosum.simulations.attacks.inference.model_inversion import ModelInversion
from zerosum.simulations.attacks.inversion.differencing import Differencing
from zerosum.simulations.attacks.inversion.features import FeatureInversion
from zerosum.simulations.attacks.inversion.first_layer import FirstLayer
from zerosum.simulations.attacks.inversion.gradient_matching import GradientMatching
from zerosum.simulations.attacks.inversion.imprint import Imprint
from zerosum.simulations.attacks.inversion.likeliest_image import LikeliestImage
from zerosum.simulations.attacks.inversion.repetition import Repetition
from zerosum.simulations.attacks.inversion.traps import Traps
from zerosum.simulations.attacks.own_task.facts import Facts
from zerosum.simulations.attacks.own_task.subject import Pool

LARGEST = 4096
"""Numbers of a record whose covariance an attacker computes: its square in memory, its cube in
time."""

FEWEST_PUBLIC = 10
"""Public records without which there is no covariance to speak of."""

Need = Callable[[Facts, Pool], str]
"""Returns what is missing; nothing where it is there."""


def missing(attack: Attack, facts: Facts, pool: Pool) -> str:
    """Return what an attack needs that a task does not have; empty where it has all.

    Parameters
    ----------
    attack : Attack
    facts : Facts
    pool : Pool

    Returns
    -------
    str
        As "needs images, and a record has the shape (13,)".
    """
    needs: list[Need] = [_public] if _has_auxiliary(attack) else []
    for kind, own in _NEEDS.items():
        if isinstance(attack, kind):
            needs += own
    return next((reason for reason in (need(facts, pool) for need in needs) if reason), "")


def _has_auxiliary(attack: Attack) -> bool:
    known = ("auxiliary_inputs", "auxiliary_labels", "mean_image")
    return any(name in known for name in attack.requires)


def _public(facts: Facts, pool: Pool) -> str:
    count = 0 if pool.spare is None else len(pool.spare)
    if count >= FEWEST_PUBLIC:
        return ""
    return f"needs {FEWEST_PUBLIC} public records beside the clients', and test_data() has {count}"


def _numbers(facts: Facts, pool: Pool) -> str:
    if not facts.numbers:
        return "needs records of floating-point numbers, and these are whole ones, as of a text"
    if facts.size > LARGEST:
        return f"needs records of at most {LARGEST} numbers, and these have {facts.size}"
    return ""


def _whole_first_layer(facts: Facts, pool: Pool) -> str:
    if facts.first is None:
        return "needs a first layer torch.nn.Linear, with biases, that takes the whole record"
    return ""


def _crafted_layer(facts: Facts, pool: Pool) -> str:
    if facts.free:
        return ""
    if not facts.chain:
        return (
            "needs a model of Linear layers with biases and ReLU between them, whose first takes "
            "the whole record"
        )
    return ""


def _labels(facts: Facts, pool: Pool) -> str:
    if not facts.cross_entropy:
        return "needs class labels, and a loss that is their cross-entropy"
    return ""


def _output_biases(facts: Facts, pool: Pool) -> str:
    return "" if facts.outputs else "needs a last layer torch.nn.Linear with a bias for each class"


def _steady(facts: Facts, pool: Pool) -> str:
    return "" if facts.steady else "needs a model without dropout, which it could not compute again"


def _image(facts: Facts, pool: Pool) -> str:
    return "" if facts.image else f"needs images, and a record has the shape {facts.shape}"


def _patches(facts: Facts, pool: Pool) -> str:
    if facts.first is not None:
        return "needs a first layer that sees patches; this one reveals the record by itself"
    return "" if facts.sequential else "needs a torch.nn.Sequential that ends in a Linear layer"


def _levels(facts: Facts, pool: Pool) -> str:
    inputs = pool.records.inputs * 16
    if not (facts.numbers and abs(inputs - inputs.round()).max() < 1e-6):
        return "needs records of 17 levels from 0 to 1, as those of digits"
    return ""


_NEEDS: Mapping[type[object], tuple[Need, ...]] = {
    # Dropout first: under it no layer is seen to give the outputs.
    GradientMatching: (_numbers, _labels, _steady, _output_biases),
    FirstLayer: (_numbers, _whole_first_layer),
    LikeliestImage: (_numbers, _whole_first_layer, _labels, _steady),
    FeatureInversion: (_numbers, _labels, _steady, _output_biases, _patches),
    Differencing: (_numbers, _whole_first_layer),
    Repetition: (_numbers, _whole_first_layer, _labels, _levels),
    Imprint: (_numbers, _crafted_layer),
    Traps: (_numbers, _crafted_layer),
    ModelInversion: (_image, _labels),
    LossThreshold: (),
}
