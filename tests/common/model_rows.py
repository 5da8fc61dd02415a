"""The table of other people's models: each kind, and what comes of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from other_models import (
    CLASSES,
    WIDTH,
    Attention,
    Branching,
    CastsInForward,
    Checkpointed,
    ComplexWeights,
    Detached,
    EmptyParameter,
    Expanded,
    Fourier,
    FreezesInForward,
    Frozen,
    FrozenComplex,
    GrowsInForward,
    HalfBody,
    Heads,
    InPlaceOnInputs,
    IntegerParameter,
    KeepsState,
    LanguageModel,
    Lists,
    ModelOutput,
    MovesBuffer,
    Net,
    NotTrained,
    Once,
    OnlyScalar,
    Outputs,
    Overlapping,
    OwnFunction,
    Parts,
    RealView,
    Recurrent,
    ScalarParameter,
    Several,
    Strided,
    TakesAnyNames,
    TakesDict,
    TakesNames,
    ThawsInForward,
    Tied,
    Tokens,
    Transformer,
    Transposed,
    TwoHeads,
    TwoNames,
    Unused,
    ViewingBuffer,
    _no_inputs,
    after_hooked,
    attribute,
    backward_hooked,
    binary,
    both,
    compiled_child,
    compiled_in_place,
    convolutions,
    cross_entropy,
    first,
    gradient_hooked,
    hooked,
    images,
    logits,
    lora,
    lora_parametrized,
    made_whole,
    mean_loss,
    mlp,
    no_tensor,
    of,
    old_spectral_norm,
    old_weight_norm,
    on_meta,
    one_logit,
    over,
    pruned,
    quantised,
    scripted,
    scripted_child,
    sequences,
    spectral_norm,
    squares,
    tokens,
    traced,
    two_targets,
    vectors,
)
from torch import Tensor, nn
from torch.nn.utils import parametrizations


@dataclass(frozen=True)
class Row:
    """One kind of model, and what comes of it.

    Attributes
    ----------
    name : str
        The kind.
    make : callable
        Returns a new model.
    refused : str
        Words of the refusal, none where it is trained; likewise ``by_example``.
    """

    name: str
    make: Callable[[], Any]
    loss: Callable[[Any, Tensor], Tensor] = cross_entropy
    data: Callable[[], Any] = vectors
    refused: str = ""
    by_example: str = ""


def row(name: str, make: Callable[[], Any], **rest: Any) -> Row:
    return Row(name, make, **rest)


def mixes(layer: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: over(nn.Sequential(nn.Linear(WIDTH, 4), layer()))


BAG = lambda: Tokens(nn.EmbeddingBag(9, 4, sparse=True))  # noqa: E731
ROWS: tuple[Row, ...] = (
    row("plain layers", mlp),
    row("convolutions", convolutions, data=images),
    row("scalar parameter", ScalarParameter),
    row("only a scalar parameter", OnlyScalar, data=binary, loss=one_logit),
    row("empty parameter", EmptyParameter),
    row("layer without inputs", _no_inputs),
    row("tied weights", Tied),
    row("one module under two names", TwoNames),
    row("tied embedding and decoder", LanguageModel, data=tokens),
    row("frozen layers", Frozen),
    row("LoRA adapter", lora),
    row("LoRA by parametrization", lora_parametrized),
    row("spectral norm by hook", old_spectral_norm, by_example="buffer 0.weight_u is moved"),
    row("spectral norm", spectral_norm,
        by_example="is moved while it computes"),
    row("weight norm by hook", old_weight_norm),
    row("weight norm", lambda: over(parametrizations.weight_norm(nn.Linear(WIDTH, 4)))),
    row("orthogonal weight", lambda: over(parametrizations.orthogonal(nn.Linear(WIDTH, 4)))),
    row("pruned weight", pruned),
    row("lazy", lambda: over(nn.LazyLinear(4)), refused="0 (LazyLinear) has no shape"),
    row("lazy, made whole in model()", made_whole),
    row("tuple output", lambda: Several(lambda a, b: (a, b)), loss=first),
    row("list output", lambda: Several(lambda a, b: [a, b]), loss=first),
    row("dict output", lambda: Several(lambda a, b: {"logits": a, "hidden": b}), loss=logits),
    row("namedtuple output", lambda: Several(Heads), loss=attribute),
    row("ModelOutput output", lambda: Several(lambda a, b: ModelOutput(logits=a, hidden=b)),
        loss=attribute),
    row("dataclass output", lambda: Several(Outputs), loss=attribute),
    row("in place on inputs", InPlaceOnInputs),
    row("activation in place", lambda: nn.Sequential(
        nn.Linear(WIDTH, 4), nn.ReLU(inplace=True), nn.Linear(4, CLASSES))),
    row("complex weights", ComplexWeights, refused="weight is complex64"),
    row("frozen complex weight and buffer", FrozenComplex),
    row("complex weights stored as reals", RealView),
    row("Fourier transform inside", Fourier),
    row("float16", of(torch.float16)),
    row("bfloat16", of(torch.bfloat16)),
    row("float64", of(torch.float64)),
    row("float16 body under a float32 head", HalfBody),
    row("one logit", lambda: Net(classes=1), data=binary, loss=one_logit),
    row("regression", lambda: Net(classes=1), data=binary, loss=squares),
    row("two heads", TwoHeads, data=two_targets, loss=both),
    row("unused parameters", Unused),
    row("branches by data", Branching),
    row("dropout", lambda: nn.Sequential(nn.Linear(WIDTH, 8), nn.Dropout(0.5), nn.Linear(8, 3)),
        by_example="coins"),
    row("RNN", lambda: Recurrent(nn.RNN), data=sequences),
    row("LSTM", lambda: Recurrent(nn.LSTM), data=sequences),
    row("GRU", lambda: Recurrent(nn.GRU), data=sequences),
    row("LSTM of packed sequences", lambda: Recurrent(nn.LSTM, packed=True), data=sequences),
    row("attention", Attention, data=sequences),
    row("transformer", Transformer, data=sequences),
    row("transformer with dropout", lambda: Transformer(0.2), data=sequences, by_example="coins"),
    row("batch norm without statistics",
        mixes(lambda: nn.BatchNorm1d(4, track_running_stats=False)),
        by_example="mixes the examples"),
    row("group norm", lambda: convolutions(nn.GroupNorm(2, 4)), data=images),
    row("layer norm", mixes(lambda: nn.LayerNorm(4))),
    row("instance norm", lambda: convolutions(nn.InstanceNorm2d(4, affine=True)), data=images),
    row("embedding", lambda: Tokens(nn.Embedding(9, 4, padding_idx=0)), data=tokens),
    row("sparse embedding bag", BAG, data=tokens),
    row("embedding of bounded norm", lambda: Tokens(nn.Embedding(9, 4, max_norm=1.0)),
        data=tokens, by_example="is moved while it computes"),
    row("convolution transposed", Transposed, data=images),
    row("convolution of sequences", lambda: nn.Sequential(
        nn.Conv1d(5, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(15, CLASSES)), data=sequences),
    row("compiled", lambda: torch.compile(mlp(), backend="eager")),
    row("compiled child", compiled_child),
    row("compiled in place", compiled_in_place),
    row("scripted", scripted, by_example="is a script"),
    row("traced", traced, by_example="is a script"),
    row("scripted child", scripted_child, by_example="is a script"),
    row("ParameterList and ParameterDict", Lists),
    row("buffer updated in forward", MovesBuffer, by_example="buffer scale is moved"),
    row("state kept from batch to batch", KeepsState),
    row("frozen in forward", FreezesInForward, refused="body.weight"),
    row("thawed in forward", ThawsInForward, refused="body.weight"),
    row("parameter made in forward", GrowsInForward, refused="late"),
    row("dict inputs", TakesDict, data=Parts),
    row("inputs by name", TakesNames, data=Parts, refused="takes left, right by name"),
    row("inputs by any name", TakesAnyNames, data=Parts, refused="takes left, right by name"),
    row("items of one dict", TakesDict, data=lambda: Parts(whole=True),
        refused="left, right, labels"),
    row("strided parameters", Strided),
    row("expanded parameter", Expanded, refused="offset"),
    row("parameters in the same memory", Overlapping, refused="twin"),
    row("buffer that views a parameter", ViewingBuffer, refused="view"),
    row("integer parameters", IntegerParameter),
    row("quantised", quantised, refused="nothing to train"),
    row("meta device", on_meta, refused="meta device"),
    row("forward hooks", hooked),
    row("backward hooks", backward_hooked),
    row("gradient hook", gradient_hooked),
    row("hook after the gradient", after_hooked, refused="hook"),
    row("checkpointed", lambda: Checkpointed(reentrant=False)),
    row("checkpointed, reentrant", lambda: Checkpointed(reentrant=True), refused="use_reentrant"),
    row("autograd function of one's own", OwnFunction),
    row("data parallel", lambda: nn.DataParallel(Net())),
    row("integers for a linear layer", mlp, data=lambda: ((10 * vectors()[0]).long(), vectors()[1]),
        refused="data: inputs are integers"),
    row("bytes for a convolution", convolutions, refused="data: inputs are integers",
        data=lambda: ((10 * images()[0]).byte(), images()[1])),
    row("casts in forward", CastsInForward, refused="x.to(self.weight.dtype)"),
    row("output without gradient", Detached, refused="no trained parameter"),
    row("nothing to train", NotTrained, refused="nothing to train"),
    row("no module", lambda: (lambda x: x), refused="nn.Module"),
    row("the same model each time", Once(), refused="the same model"),
    row("mean loss", mlp, loss=mean_loss, refused="one loss an example"),
    row("loss that is no tensor", mlp, loss=no_tensor, refused="returned a float"),
)  # fmt: skip
