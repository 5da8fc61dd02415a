"""The adverts of a session as a client reads them: by cohort position, and checked."""

from dataclasses import dataclass

from zerosum.secagg.errors import DuplicateKey
from zerosum.secagg.keys import check_public_key
from zerosum.secagg.messages import ADVERT_BYTES, KEY_BYTES, Adverts
from zerosum.secagg.wire import from_bitmap


@dataclass(frozen=True)
class Directory:
    """The adverts of U1, by cohort position."""

    entries: dict[int, bytes]
    channel_keys: dict[int, bytes]
    mask_keys: dict[int, bytes]

    @classmethod
    def of(cls, message: Adverts) -> "Directory":
        """Read a broadcast.

        Raises
        ------
        RemoteProtocolError
            ``BadKey`` or one of its kinds, if a key is not canonical, has low order, or occurs
            twice.
        """
        raw, positions = message.entries, from_bitmap(message.present).tolist()
        offsets = range(0, len(raw), ADVERT_BYTES)
        entries = {p: raw[at : at + ADVERT_BYTES] for p, at in zip(positions, offsets, strict=True)}
        channel = {p: entry[:KEY_BYTES] for p, entry in entries.items()}
        mask = {p: entry[KEY_BYTES : 2 * KEY_BYTES] for p, entry in entries.items()}
        keys = [*channel.values(), *mask.values()]
        for key in keys:
            check_public_key(key)
        if len(set(keys)) != len(keys):
            raise DuplicateKey("two keys of the adverts are equal")
        return cls(entries, channel, mask)
