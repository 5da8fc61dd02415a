"""Words of b bits, one after another, least significant bit first.

Words are merged into units of at most 57 bits, so that a unit shifted by up to seven bits still
fits a 64-bit integer; a unit is then written or read as whole bytes. Eight words fill exactly
b bytes, and every group of eight looks alike, so each step is one operation on all groups.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

_GROUP = 8
_WIDEST_UNIT = 57
_GROUPS_AT_ONCE = 1 << 12


def packed_bytes(length: int, bits: int) -> int:
    """Return the number of bytes that ``length`` words of ``bits`` bits take."""
    return (length * bits + 7) // 8


def pack_words(words: NDArray[Any], bits: int) -> bytes:
    """Pack unsigned words, all below 2^bits, into bytes.

    Parameters
    ----------
    words : ndarray of unsigned integers, shape (d,)
        A value of 2^bits or more corrupts its neighbours: the caller reduces first.
    bits : int
        1 to 64.

    Returns
    -------
    bytes
        ``packed_bytes(d, bits)`` bytes; the unused top bits of the last one are zero.
    """
    if bits in (8, 16, 32, 64):
        return words.astype(f"<u{bits // 8}", copy=False).tobytes()
    size = packed_bytes(len(words), bits)
    if bits > _WIDEST_UNIT:
        table = words.astype("<u8").view(np.uint8).reshape(-1, 8)
        return np.packbits(
            np.unpackbits(table, axis=1, bitorder="little")[:, :bits], bitorder="little"
        ).tobytes()
    groups = -(-len(words) // _GROUP)
    out = np.empty(groups * bits, np.uint8)
    for start in range(0, groups, _GROUPS_AT_ONCE):
        stop = min(groups, start + _GROUPS_AT_ONCE)
        chunk = words[start * _GROUP : stop * _GROUP]
        _pack_groups(chunk, bits, out[start * bits : stop * bits])
    return out[:size].tobytes()


def unpack_words(data: bytes, length: int, bits: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Undo :func:`pack_words`; ``data`` must be exactly as long as ``length`` asks for.

    The caller has checked the length of ``data`` and its unused top bits.
    """
    if bits in (8, 16, 32, 64):
        return np.frombuffer(data, f"<u{bits // 8}").astype(dtype)
    raw = np.frombuffer(data, np.uint8)
    if bits > _WIDEST_UNIT:
        table = np.zeros((length, 64), np.uint8)
        used = np.unpackbits(raw, bitorder="little")[: length * bits]
        table[:, :bits] = used.reshape(length, bits)
        return np.packbits(table, bitorder="little").view("<u8").astype(dtype)
    groups = -(-length // _GROUP)
    if len(raw) < groups * bits:
        raw = np.concatenate([raw, np.zeros(groups * bits - len(raw), np.uint8)])
    out = np.empty(groups * _GROUP, dtype)
    for start in range(0, groups, _GROUPS_AT_ONCE):
        stop = min(groups, start + _GROUPS_AT_ONCE)
        piece = out[start * _GROUP : stop * _GROUP]
        _unpack_groups(raw[start * bits : stop * bits], bits, piece)
    return out[:length]


def _words_per_unit(bits: int) -> int:
    """Return the largest of 1, 2, 4, 8 whose words still fit the widest unit together."""
    return max(count for count in (1, 2, 4, 8) if count == 1 or count * bits <= _WIDEST_UNIT)


def _bytes_view(array: NDArray[Any], offset: int, stride: int, width: int) -> NDArray[Any]:
    """Return ``width`` opaque bytes at ``offset`` of every record of ``stride`` bytes."""
    count = array.nbytes // stride
    return np.ndarray((count,), f"V{width}", array, offset, (stride,))


def _pack_groups(words: NDArray[Any], bits: int, out: NDArray[np.uint8]) -> None:
    """Pack whole groups (the last may be short) into ``out``, ``bits`` bytes a group."""
    groups = len(out) // bits
    units = np.zeros(groups * _GROUP, "<u8")
    units[: len(words)] = words
    count = _words_per_unit(bits)
    width = bits
    while width < count * bits:
        units = units[0::2] | (units[1::2] << np.uint64(width))
        width *= 2
    table = units.reshape(groups, _GROUP // count)
    spill = np.zeros(groups, "<u8")
    for unit in range(_GROUP // count):
        first, shift = divmod(unit * width, 8)
        after, left_over = divmod((unit + 1) * width, 8)
        column = np.ascontiguousarray(table[:, unit])
        shifted = (column << np.uint64(shift)) | spill
        size = after - first
        if size:
            _bytes_view(out, first, bits, size)[...] = _bytes_view(shifted, 0, 8, size)
        # A unit's bits past its last whole byte open the next unit's first byte.
        spill = shifted >> np.uint64(8 * size) if left_over else np.zeros(groups, "<u8")


def _unpack_groups(raw: NDArray[np.uint8], bits: int, out: NDArray[Any]) -> None:
    """Unpack whole groups of ``bits`` bytes into eight words each."""
    groups = len(raw) // bits
    count = _words_per_unit(bits)
    width = count * bits
    table = out.reshape(groups, _GROUP // count, count)
    mask = np.uint64((1 << bits) - 1)
    for unit in range(_GROUP // count):
        first, shift = divmod(unit * width, 8)
        size = (shift + width + 7) // 8
        lane = np.zeros(groups, "<u8")
        _bytes_view(lane, 0, 8, size)[...] = _bytes_view(raw, first, bits, size)
        for word in range(count):
            table[:, unit, word] = (lane >> np.uint64(shift + word * bits)) & mask
