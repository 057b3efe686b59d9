"""EfficientNet-Lite: EfficientNet without squeeze-and-excitation, with ReLU6, stem and head not widened.

The ImageNet weights of these networks come in a Python package (extra `weights`), so that the study's CNN
works offline. Names of parameters are those of the weight files. Padding is TensorFlow's 'same': with stride
2 the extra pixel is at the bottom right, and a network that pads in another way applies its weights shifted.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

STAGES = (
    # repeats, kernel, stride, expansion, input width, output width
    (1, 3, 1, 1, 32, 16),
    (2, 3, 2, 6, 16, 24),
    (2, 5, 2, 6, 24, 40),
    (3, 3, 2, 6, 40, 80),
    (3, 5, 1, 6, 80, 112),
    (4, 5, 2, 6, 112, 192),
    (1, 3, 1, 6, 192, 320),
)
SCALES = {
    "efficientnet-lite0": (1.0, 1.0),
    "efficientnet-lite1": (1.0, 1.1),
    "efficientnet-lite2": (1.1, 1.2),
}
"""Width and depth factors."""


class SameConv(nn.Conv2d):
    """A convolution with TensorFlow's 'same' padding.

    It takes the arguments of `torch.nn.Conv2d`; kernels are square, with an odd size where the stride is 1.
    """

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Convolve feature maps.

        Args:
            x: (n, channels, height, width).

        Returns:
            (n, channels, height / stride, width / stride), rounded up.
        """
        kernel, stride = self.kernel_size[0], self.stride[0]
        if stride == 1:
            padding = self.dilation[0] * (kernel - 1) // 2
            return functional.conv2d(x, self.weight, self.bias, 1, padding, self.dilation, self.groups)
        pads = []
        for size in (x.shape[3], x.shape[2]):
            total = max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)
            pads += [total // 2, total - total // 2]
        return functional.conv2d(
            functional.pad(x, pads), self.weight, self.bias, stride, 0, self.dilation, self.groups
        )


def _norm(width: int) -> nn.BatchNorm2d:
    # The weights were trained with momentum 0.01; fine-tuning has too few steps for such slow statistics.
    return nn.BatchNorm2d(width, eps=1e-3, momentum=0.1)


class Block(nn.Module):
    """Expand, depthwise, project; the input is added where the shape allows.

    Args:
        inside: Channels of the input.
        outside: Channels of the output.
        kernel: The size of the depthwise convolution's kernel.
        stride: The stride of the depthwise convolution.
        expansion: The number of channels in between, as a multiple of those of the input.
    """

    def __init__(self, inside: int, outside: int, *, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inside * expansion
        self.expands = expansion != 1
        if self.expands:
            self._expand_conv = SameConv(inside, wide, 1, bias=False)
            self._bn0 = _norm(wide)
        self._depthwise_conv = SameConv(wide, wide, kernel, stride=stride, groups=wide, bias=False)
        self._bn1 = _norm(wide)
        self._project_conv = SameConv(wide, outside, 1, bias=False)
        self._bn2 = _norm(outside)
        self.adds = stride == 1 and inside == outside

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the block's feature maps.

        Args:
            x: (n, inside, height, width).

        Returns:
            (n, outside, height / stride, width / stride), rounded up.
        """
        y = x
        if self.expands:
            y = functional.relu6(self._bn0(self._expand_conv(y)))
        y = functional.relu6(self._bn1(self._depthwise_conv(y)))
        y = self._bn2(self._project_conv(y))
        return x + y if self.adds else y


class EfficientNetLite(nn.Module):
    """The network up to its pooled features; the classifier is not part of it.

    Args:
        name: One of `SCALES`.

    Raises:
        KeyError: The name is not in `SCALES`.
    """

    def __init__(self, name: str = "efficientnet-lite0") -> None:
        super().__init__()
        width, depth = SCALES[name]
        self._conv_stem = SameConv(3, 32, 3, stride=2, bias=False)
        self._bn0 = _norm(32)
        blocks: list[Block] = []
        for at, (repeats, kernel, stride, expansion, inside, outside) in enumerate(STAGES):
            inside = 32 if at == 0 else _round_width(inside, width)
            outside = _round_width(outside, width)
            count = repeats if at in (0, len(STAGES) - 1) else math.ceil(repeats * depth)
            for repeat in range(count):
                blocks.append(
                    Block(
                        inside if repeat == 0 else outside,
                        outside,
                        kernel=kernel,
                        stride=stride if repeat == 0 else 1,
                        expansion=expansion,
                    )
                )
        self._blocks = nn.ModuleList(blocks)
        last = _round_width(STAGES[-1][5], width)
        self._conv_head = SameConv(last, 1280, 1, bias=False)
        self._bn1 = _norm(1280)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the features of pictures.

        Args:
            x: (n, 3, height, width) pictures.

        Returns:
            (n, 1280) features, averaged over the picture.
        """
        x = functional.relu6(self._bn0(self._conv_stem(x)))
        for block in self._blocks:
            x = block(x)
        x = functional.relu6(self._bn1(self._conv_head(x)))
        return x.mean(dim=(2, 3))


class LiteEncoder(nn.Module):
    """EfficientNet-Lite without its last layer; it returns the last map at each of five sizes.

    Args:
        body: The network, whose layers it shares.
    """

    def __init__(self, body: EfficientNetLite) -> None:
        super().__init__()
        self.stem, self.norm, self.blocks = body._conv_stem, body._bn0, body._blocks
        blocks = [block for block in body._blocks if isinstance(block, Block)]
        halves = [block._depthwise_conv.stride[0] == 2 for block in blocks]
        self.taps = frozenset(at for at in range(len(halves)) if at + 1 == len(halves) or halves[at + 1])

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Compute the maps.

        Args:
            x: (n, 3, height, width) pictures.

        Returns:
            Maps at 1/2, 1/4, 1/8, 1/16 and 1/32 of the pictures' size.
        """
        x = functional.relu6(self.norm(self.stem(x)))
        levels = []
        for at, block in enumerate(self.blocks):
            x = block(x)
            if at in self.taps:
                levels.append(x)
        return levels


def _round_width(width: int, factor: float, divisor: int = 8) -> int:
    if factor == 1.0:
        return width
    wide = width * factor
    rounded = max(divisor, int(wide + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * wide else rounded
