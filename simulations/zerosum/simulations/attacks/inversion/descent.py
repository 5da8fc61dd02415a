"""Minimise by curvature (L-BFGS) where gradients are exact, and by their signs where noisy."""

from collections.abc import Callable, Sequence

import torch

Objective = Callable[[], torch.Tensor]


def by_curvature(free: Sequence[torch.Tensor], objective: Objective, iterations: int) -> None:
    """Minimise in place by L-BFGS with a line search (Zhu et al. 2019, section 4.1).

    Parameters
    ----------
    free : sequence of torch.Tensor
        Leaves that require gradients; changed in place.
    objective : callable
        Returns a scalar tensor of the leaves.
    iterations : int
    """
    optimiser = torch.optim.LBFGS(
        free,
        max_iter=iterations,
        history_size=50,
        # An image is exact only once the misfit has fallen by many powers of ten.
        tolerance_grad=1e-14,
        tolerance_change=1e-16,
        line_search_fn="strong_wolfe",
    )

    def closure() -> float:
        optimiser.zero_grad()
        value = objective()
        value.backward()  # type: ignore[no-untyped-call]
        return float(value.detach())

    optimiser.step(closure)  # type: ignore[no-untyped-call]


def by_signs(
    images: torch.Tensor, others: Sequence[torch.Tensor], objective: Objective, iterations: int
) -> None:
    """Minimise in place by Adam on the gradient's signs; images stay within [0, 1].

    Geiping et al. 2020, section 6 and appendix: the rate 0.1 falls tenfold after 3/8, 5/8 and 7/8
    of the iterations.

    Parameters
    ----------
    images : torch.Tensor
        Shape (n, ...); a leaf, changed in place by signs.
    others : sequence of torch.Tensor
        Further leaves, changed in place by their gradient.
    objective : callable
        Returns a scalar tensor of the leaves.
    iterations : int
    """
    optimiser = torch.optim.Adam([images, *others], lr=0.1)
    falls = [iterations * part // 8 for part in (3, 5, 7)]
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, falls, gamma=0.1)
    for _ in range(iterations):
        optimiser.zero_grad()
        objective().backward()  # type: ignore[no-untyped-call]
        if images.grad is not None:
            images.grad.sign_()
        optimiser.step()
        schedule.step()
        with torch.no_grad():
            images.clamp_(0.0, 1.0)


def variation(images: torch.Tensor) -> torch.Tensor:
    """Return the mean absolute difference of neighbouring pixels of images (n, ..., h, w)."""
    if images.dim() < 3:
        return (images[..., 1:] - images[..., :-1]).abs().mean()
    across = (images[..., 1:] - images[..., :-1]).abs().mean()
    return across + (images[..., 1:, :] - images[..., :-1, :]).abs().mean()
