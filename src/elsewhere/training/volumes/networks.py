"""A residual-encoder U-Net from a plan, of MONAI's blocks (MRI-13).

The encoder is a chain of MONAI's `UnetResBlock`; the decoder has one convolution a stage, as nnU-Net's ResEnc
presets have. `encoder` and `decoder` are modules of their own: pretraining and a second task use them alone.
"""

from __future__ import annotations

import torch
from torch import nn

from elsewhere.training.volumes.planning import Plan, Triple

NORM = ("INSTANCE", {"affine": True, "eps": 1e-5})
ACTIVATION = ("leakyrelu", {"inplace": True, "negative_slope": 0.01})


class Encoder(nn.Module):
    """Features of every stage, finest first."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        from monai.networks.blocks.dynunet_block import UnetResBlock, get_conv_layer

        self.widths = plan.widths
        self.stem = nn.Sequential(
            get_conv_layer(
                3, plan.channels, plan.widths[0], kernel_size=plan.kernels[0], act=None, norm=None
            ),
            Norm(plan.widths[0]),
        )
        stages = []
        before = plan.widths[0]
        for stride, kernel, width, blocks in zip(
            plan.strides, plan.kernels, plan.widths, plan.blocks, strict=True
        ):
            # A stride needs a kernel at least as wide: an axis of kernel 1 is never pooled by a plan.
            chain = [UnetResBlock(3, before, width, kernel, stride, NORM, ACTIVATION)]
            chain += [UnetResBlock(3, width, width, kernel, 1, NORM, ACTIVATION) for _ in range(blocks - 1)]
            stages.append(nn.Sequential(*chain))
            before = width
        self.stages = nn.ModuleList(stages)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        x = self.stem(x)
        features = []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        return features


class Norm(nn.Module):
    """Instance norm and leaky ReLU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.InstanceNorm3d(width, affine=True)
        self.act = nn.LeakyReLU(0.01, inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.norm(x))


class Up(nn.Module):
    """A transposed convolution, the skip beside it, one convolution."""

    def __init__(self, below: int, width: int, stride: Triple, kernel: Triple) -> None:
        super().__init__()
        from monai.networks.blocks.dynunet_block import get_conv_layer

        self.up = nn.ConvTranspose3d(below, width, stride, stride)
        self.conv = get_conv_layer(3, 2 * width, width, kernel_size=kernel, act=None, norm=None)
        self.norm = Norm(width)

    def forward(self, x: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
        return self.norm(self.conv(torch.cat((self.up(x), skip), dim=1)))


class Decoder(nn.Module):
    """Logits from the encoder's features: of every stage while training (finest first), of the finest else."""

    def __init__(self, plan: Plan, *, outputs: int = 1, deep_supervision: bool = True) -> None:
        super().__init__()
        last = len(plan.widths) - 1
        self.deep_supervision = deep_supervision
        self.ups = nn.ModuleList(
            Up(plan.widths[at + 1], plan.widths[at], plan.strides[at + 1], plan.kernels[at])
            for at in reversed(range(last))
        )
        # nnU-Net gives the two coarsest maps no say; a network of one or two stages has one head.
        heads = max(1, last - 1) if deep_supervision else 1
        self.heads = nn.ModuleList(nn.Conv3d(plan.widths[at], outputs, 1) for at in range(heads))

    def forward(self, features: list[torch.Tensor]) -> list[torch.Tensor] | torch.Tensor:
        x = features[-1]
        maps = [x]
        for up, skip in zip(self.ups, reversed(features[:-1]), strict=True):
            x = up(x, skip)
            maps.append(x)
        maps.reverse()
        if self.training and self.deep_supervision:
            return [head(here) for head, here in zip(self.heads, maps, strict=False)]
        return self.heads[0](maps[0])


class ResidualUNet(nn.Module):
    """One logit a voxel. In training a list of them, finest first; else the finest."""

    def __init__(self, plan: Plan, *, outputs: int = 1, deep_supervision: bool = True) -> None:
        super().__init__()
        self.encoder = Encoder(plan)
        self.decoder = Decoder(plan, outputs=outputs, deep_supervision=deep_supervision)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor] | torch.Tensor:
        return self.decoder(self.encoder(x))


def build_network(
    plan: Plan, *, seed: int, outputs: int = 1, deep_supervision: bool = True, device: str = "cpu"
) -> ResidualUNet:
    """The plan's network with He weights drawn from `seed` alone, on `device`, channels last."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = ResidualUNet(plan, outputs=outputs, deep_supervision=deep_supervision)
        for module in network.modules():
            if isinstance(module, nn.Conv3d | nn.ConvTranspose3d):
                nn.init.kaiming_normal_(module.weight, a=0.01)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
    return network.to(device=device, memory_format=torch.channels_last_3d)  # type: ignore[call-overload]
