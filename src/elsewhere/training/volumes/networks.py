"""A residual-encoder U-Net from a plan, of MONAI's blocks (MRI-13).

The encoder is a chain of MONAI's `UnetResBlock`; the decoder has one convolution per stage, as nnU-Net's
ResEnc presets have. `encoder` and `decoder` are modules of their own: pretraining and a second task use them
alone.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from elsewhere.training.cuda_options import cuda_options
from elsewhere.training.volumes.planning import Plan, Triple

NORM = ("INSTANCE", {"affine": True, "eps": 1e-5})
ACTIVATION = ("leakyrelu", {"inplace": True, "negative_slope": 0.01})


class Encoder(nn.Module):
    """A chain of residual blocks; it returns the features of every stage, the finest first.

    Args:
        plan: Widths, blocks, strides and kernels of the stages.
    """

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
            stages.append(with_own_norms(nn.Sequential(*chain)))
            before = width
        self.stages = nn.ModuleList(stages)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Return the features of every stage.

        Args:
            x: [n, channels, x, y, z].

        Returns:
            One [n, width, ...] per stage, the finest first.
        """
        x = self.stem(x)
        features = []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        return features


def _table(volume: torch.Tensor) -> torch.Tensor:
    """[channel, x, y, z] with channels last in memory, as [voxel, channel]: no copy."""
    return volume.permute(1, 2, 3, 0).view(-1, volume.shape[0])


class FusedInstanceNorm(torch.autograd.Function):
    """Instance norm by torch's batch-norm kernels.

    A sample with its channels last is a table of voxels, and its columns are what batch norm normalises. A
    map is read twice and written once, sums are float32, and nothing but the input is stored for backward.
    """

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float
    ) -> torch.Tensor:
        """Normalise each channel of each sample.

        Args:
            ctx: Stores what backward needs.
            x: [n, channels, x, y, z], channels last in memory.
            weight: The scale of each channel.
            bias: The shift of each channel.
            eps: Added to the variance.

        Returns:
            As `x`.
        """
        out = torch.empty_like(x)
        kind = torch.promote_types(x.dtype, torch.float32)
        mean, inverse = (torch.empty(x.shape[:2], dtype=kind, device=x.device) for _ in range(2))
        for at in range(len(x)):
            torch.ops.aten.native_batch_norm.out(
                _table(x[at]), weight, bias, None, None, True, 0.0, eps,
                out=_table(out[at]), save_mean=mean[at], save_invstd=inverse[at],
            )  # fmt: skip
        ctx.save_for_backward(x, weight, mean, inverse)
        ctx.eps = eps
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, None]:
        """Return the gradients.

        Args:
            ctx: What forward stored.
            grad: The gradient of the output, [n, channels, x, y, z].

        Returns:
            The gradients of `x`, `weight` and `bias`, and None for `eps`.
        """
        x, weight, mean, inverse = ctx.saved_tensors
        grad = grad.contiguous(memory_format=torch.channels_last_3d)
        parts = [
            torch.ops.aten.native_batch_norm_backward(
                _table(grad[at]), _table(x[at]), weight, None, None, mean[at], inverse[at],
                True, ctx.eps, [True, True, True],
            )
            for at in range(len(x))
        ]  # fmt: skip
        own, scale, shift = (torch.stack(entry) for entry in zip(*parts, strict=True))
        n, width, *space = x.shape
        return own.view(n, *space, width).permute(0, 4, 1, 2, 3), scale.sum(0), shift.sum(0), None


class InstanceNorm(nn.Module):
    """Instance norm that leaves channels last on a GPU, where torch's own would copy the map twice.

    Compiled it is one reduction and one fused pass; otherwise `FusedInstanceNorm`. On a CPU, and with
    channels first, it is torch's own.

    Args:
        width: Channels.
        eps: Added to the variance.
    """

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise each channel of each sample.

        Args:
            x: [n, channels, x, y, z], in any layout.

        Returns:
            As `x`.
        """
        if not x.is_cuda or x.is_contiguous():
            return functional.instance_norm(x, weight=self.weight, bias=self.bias, eps=self.eps)
        if torch.compiler.is_compiling() or not cuda_options().fused_norm:
            return self.in_any_layout(x)
        x = x.contiguous(memory_format=torch.channels_last_3d)
        found: torch.Tensor = FusedInstanceNorm.apply(x, self.weight, self.bias, self.eps)
        return found

    def in_any_layout(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise in plain operations, whatever the layout.

        Args:
            x: [n, channels, x, y, z].

        Returns:
            As `x`.
        """
        values = x.float()
        variance, mean = torch.var_mean(values, dim=(2, 3, 4), correction=0, keepdim=True)
        scale = torch.rsqrt(variance + self.eps) * self.weight[None, :, None, None, None]
        return ((values - mean) * scale + self.bias[None, :, None, None, None]).to(x.dtype)


def with_own_norms(module: nn.Module) -> nn.Module:
    """Put `InstanceNorm` in place of torch's inside a module; the names of the weights stay.

    Args:
        module: MONAI's blocks; changed.

    Returns:
        The module.
    """
    for name, child in module.named_children():
        if isinstance(child, nn.InstanceNorm3d):
            setattr(module, name, InstanceNorm(child.num_features, child.eps))
        else:
            with_own_norms(child)
    return module


def layout_of(network: nn.Module) -> torch.memory_format:
    """Return the layout of a network's weights, which its input should have.

    Args:
        network: Any network.

    Returns:
        Channels last or contiguous.
    """
    for p in network.parameters():
        if p.ndim == 5 and p.shape[1] > 1 and p[0, 0].numel() > 1:
            last = p.is_contiguous(memory_format=torch.channels_last_3d)
            return torch.channels_last_3d if last else torch.contiguous_format
    return torch.contiguous_format


class Norm(nn.Module):
    """Instance norm and leaky ReLU.

    Args:
        width: Channels.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = InstanceNorm(width)
        self.act = nn.LeakyReLU(0.01, inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise and activate.

        Args:
            x: [n, channels, x, y, z].

        Returns:
            As `x`.
        """
        return self.act(self.norm(x))


class Up(nn.Module):
    """One step of the decoder: a transposed convolution, the skip connection, one convolution.

    Args:
        below: Channels of the coarser map.
        width: Channels of the skip connection and the result.
        stride: Stride of the transposed convolution.
        kernel: Kernel of the convolution.
    """

    def __init__(self, below: int, width: int, stride: Triple, kernel: Triple) -> None:
        super().__init__()
        from monai.networks.blocks.dynunet_block import get_conv_layer

        self.up = nn.ConvTranspose3d(below, width, stride, stride)
        self.conv = get_conv_layer(3, 2 * width, width, kernel_size=kernel, act=None, norm=None)
        self.norm = Norm(width)

    def forward(self, x: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
        """Bring a coarser map to the size of a finer one, and join them.

        Args:
            x: The coarser map, [n, `below`, x, y, z].
            skip: The encoder's map of the finer size, [n, `width`, ...].

        Returns:
            As `skip`.
        """
        return self.norm(self.conv(torch.cat((self.up(x), skip), dim=1)))


class Decoder(nn.Module):
    """Turn the encoder's features into logits.

    In training there are logits of every supervised stage (the finest first), otherwise of the finest.

    Args:
        plan: Widths, strides and kernels of the stages.
        outputs: Logits per voxel.
        deep_supervision: Whether there are logits of every stage in training.
    """

    def __init__(self, plan: Plan, *, outputs: int = 1, deep_supervision: bool = True) -> None:
        super().__init__()
        last = len(plan.widths) - 1
        self.deep_supervision = deep_supervision
        self.ups = nn.ModuleList(
            Up(plan.widths[at + 1], plan.widths[at], plan.strides[at + 1], plan.kernels[at])
            for at in reversed(range(last))
        )
        # nnU-Net does not supervise the two coarsest maps; a network of one or two stages has one head.
        heads = max(1, last - 1) if deep_supervision else 1
        self.heads = nn.ModuleList(nn.Conv3d(plan.widths[at], outputs, 1) for at in range(heads))

    def forward(self, features: list[torch.Tensor]) -> list[torch.Tensor] | torch.Tensor:
        """Return the logits.

        Args:
            features: The encoder's features, the finest stage first.

        Returns:
            In training a list of [n, outputs, x, y, z], one per supervised stage with the finest first;
            otherwise the finest one.
        """
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
    """One logit per voxel; in training a list of them, the finest first.

    Args:
        plan: Widths, blocks, strides and kernels of the network.
        outputs: Logits per voxel.
        deep_supervision: Whether there are logits of every stage in training.
    """

    def __init__(self, plan: Plan, *, outputs: int = 1, deep_supervision: bool = True) -> None:
        super().__init__()
        self.encoder = Encoder(plan)
        self.decoder = Decoder(plan, outputs=outputs, deep_supervision=deep_supervision)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor] | torch.Tensor:
        """Return the logits.

        Args:
            x: [n, channels, x, y, z].

        Returns:
            In training a list of [n, outputs, x, y, z], one per supervised stage with the finest first;
            otherwise the finest one.
        """
        return self.decoder(self.encoder(x))


def build_network(
    plan: Plan,
    *,
    seed: int,
    outputs: int = 1,
    deep_supervision: bool = True,
    device: str = "cpu",
    channels_last: bool | None = None,
) -> ResidualUNet:
    """Build the plan's network with He weights drawn from a seed alone.

    Args:
        plan: Widths, blocks, strides and kernels of the network.
        seed: Seed of the weights.
        outputs: Logits per voxel.
        deep_supervision: Whether there are logits of every stage in training.
        device: "cpu", "cuda" or "cuda:N".
        channels_last: The layout; None: as `cuda_options` says.

    Returns:
        The network on the device.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = ResidualUNet(plan, outputs=outputs, deep_supervision=deep_supervision)
        for module in network.modules():
            if isinstance(module, nn.Conv3d | nn.ConvTranspose3d):
                nn.init.kaiming_normal_(module.weight, a=0.01)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
    last = cuda_options().channels_last if channels_last is None else channels_last
    layout = torch.channels_last_3d if last else torch.contiguous_format
    return network.to(device=device, memory_format=layout)  # type: ignore[call-overload]
