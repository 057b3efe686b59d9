"""One thread: the networks are tiny, and other tests run beside these."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="relevance maps need torch (pip install elsewhere[train])")


@pytest.fixture(autouse=True)
def _one_thread(one_thread):
    """For every test of this folder."""


def spots(
    n: int, generator: torch.Generator, size: int = 32
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Noise; a malignant picture has a bright spot, a benign one a bright bar elsewhere. Also where it lies."""
    images = 0.2 * torch.rand((n, 1, size, size), generator=generator)
    label = torch.arange(n) % 2
    corner = torch.randint(2, size - 10, (n, 2), generator=generator)
    for at in range(n):
        y, x = corner[at].tolist()
        if label[at]:
            images[at, 0, y : y + 8, x : x + 8] += 0.7
        else:
            images[at, 0, y : y + 2, :] += 0.7
    return images.expand(-1, 3, -1, -1).contiguous(), label, corner


@pytest.fixture(scope="session")
def trained():
    """A tiny network that tells spots from bars, and pictures it has not seen."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(5)
    images, label, _ = spots(192, generator)
    net = torch.nn.Sequential()
    net.add_module("a", torch.nn.Conv2d(3, 8, 3, padding=1))
    net.add_module("relu_a", torch.nn.ReLU(inplace=True))
    net.add_module("pool", torch.nn.MaxPool2d(2))
    net.add_module("b", torch.nn.Conv2d(8, 16, 3, padding=1))
    net.add_module("norm", torch.nn.BatchNorm2d(16))
    net.add_module("relu_b", torch.nn.ReLU(inplace=True))
    net.add_module("gap", torch.nn.AdaptiveAvgPool2d(1))
    net.add_module("flat", torch.nn.Flatten())
    net.add_module("head", torch.nn.Linear(16, 2))
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, (2 / parameter[0].numel()) ** 0.5, generator=generator)
            elif parameter is not net.norm.weight:
                parameter.zero_()
    adam = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(30):
        for part in torch.randperm(192, generator=generator).split(64):
            adam.zero_grad()
            torch.nn.functional.cross_entropy(net(images[part]), label[part]).backward()
            adam.step()
    net.eval()
    fresh, truth, corner = spots(24, generator)
    with torch.no_grad():
        right = (net(fresh).argmax(1) == truth).float().mean()
    assert right > 0.9
    return net, fresh, truth, corner
