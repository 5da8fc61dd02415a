"""The transforms that examples name most, of pictures as PIL has them and of tensors."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch


class Compose:
    """Applies transforms one after another."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, picture: Any) -> Any:
        """Return the picture, transformed."""
        for transform in self.transforms:
            picture = transform(picture)
        return picture


class ToTensor:
    """Turns a picture of bytes into float32 from 0 to 1, of shape (channels, height, width)."""

    def __call__(self, picture: Any) -> torch.Tensor:
        """Return the tensor."""
        pixels = np.array(picture, dtype=np.float32) / 255
        channels = pixels[:, :, None] if pixels.ndim == 2 else pixels
        return torch.from_numpy(np.ascontiguousarray(channels.transpose(2, 0, 1)))


class Normalize:
    """Shifts and scales every channel."""

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        self.mean = torch.tensor(mean).view(-1, 1, 1)
        self.std = torch.tensor(std).view(-1, 1, 1)

    def __call__(self, picture: torch.Tensor) -> torch.Tensor:
        """Return ``(picture - mean) / std``."""
        return (picture - self.mean) / self.std


class Resize:
    """Gives a picture another size."""

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = (size, size) if isinstance(size, int) else tuple(size)

    def __call__(self, picture: Any) -> Any:
        """Return the picture in that height and width."""
        return picture.resize(self.size[::-1])


class RandomHorizontalFlip:
    """Mirrors a picture or tensor with probability ``p``."""

    def __init__(self, p: float = 0.5) -> None:
        self.p = p

    def __call__(self, picture: Any) -> Any:
        """Return the picture or its mirror image."""
        if torch.rand(()) >= self.p:
            return picture
        if isinstance(picture, torch.Tensor):
            return picture.flip(-1)
        return picture.transpose(0)  # PIL's FLIP_LEFT_RIGHT
