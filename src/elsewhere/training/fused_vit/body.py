"""torchvision's vision transformer with its forward and backward pass written out.

Matrix products are torch's; everything between them is a few kernels (`layer_norm`, `gelu`, `attention`). The
residual stream is single precision, products run in `precision`, as autocast does. Every sum has a fixed
order: the same pictures and weights give the same bits (US-14). Only the class token leaves the network, so
the last layer asks, projects and transforms for it alone; the numbers are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from elsewhere.training.fused_vit import layer_norm, reductions
from elsewhere.training.fused_vit.attention import attention_backward, attention_forward, bias_sum_rows
from elsewhere.training.fused_vit.flat import FlatParameters
from elsewhere.training.fused_vit.gelu import gelu, gelu_backward_
from elsewhere.training.fused_vit.layer_norm import Normed

MOST_ELEMENTS = 2**31
"""The kernels count elements with 32 bits."""


@dataclass(frozen=True)
class _LayerTape:
    """What a layer's backward pass reads."""

    first: Normed
    qkv: torch.Tensor
    mixed: torch.Tensor
    lse: torch.Tensor
    second: Normed
    linear: torch.Tensor
    activated: torch.Tensor


class _Tape:
    """A forward pass as its backward pass needs it; layers are dropped as they are used."""

    def __init__(self) -> None:
        self.layers: list[_LayerTape] = []
        self.patches: torch.Tensor
        self.last: Normed


class TransformerBody:
    """A vision transformer from pictures to features.

    Call it to train, use `features` for inference, and `refresh` after weights were written. A call's
    backward pass writes the gradients of all parameters into `flat.gradient` (it adds nothing up) and leaves
    the parameters' own `.grad` alone: `FlatAdam` takes them from there.

    Args:
        vit: torchvision's `VisionTransformer` without its heads; its parameters move into one piece of
            memory.
        precision: The precision of the matrix products.
    """

    def __init__(self, vit: nn.Module, *, precision: torch.dtype = torch.bfloat16) -> None:
        module: Any = vit
        self.precision = precision
        self.patch_px = int(module.patch_size)
        self.tokens = int(module.seq_length)
        self.heads = int(module.encoder.layers[0].num_heads)
        self.layers = len(module.encoder.layers)
        self.eps = float(module.encoder.ln.eps)
        self.width = int(module.hidden_dim)
        self.mlp_width = int(module.mlp_dim)
        self.flat = FlatParameters(vit, precision)
        names = self.flat.names()
        self._exact = {name: self.flat.view(self.flat.values, name) for name in names}
        self._weight = {name: _as_matrix(self.flat.view(self.flat.copy, name)) for name in names}
        self._d_weight = {name: _as_matrix(self.flat.view(self.flat.gradient, name)) for name in names}
        self._anchor = torch.zeros((), device=self.flat.values.device, requires_grad=True)
        self._sums: torch.Tensor | None = None

    def refresh(self) -> None:
        """Make the products' copy of the weights follow what was loaded into the module."""
        self.flat.refresh()

    @torch.no_grad()
    def features(self, x: torch.Tensor) -> torch.Tensor:
        """Return the features of pictures; nothing is stored for a backward pass.

        Args:
            x: [images, 3, size, size].

        Returns:
            [images, width] in single precision.
        """
        return self._forward(x, None)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The same, for training: a backward pass through the result fills `flat.gradient`."""
        return _Body.apply(self._anchor, x, self)

    def _patches(self, x: torch.Tensor) -> torch.Tensor:
        """A row a token: the patch's pixels, and zeros for the class token, so that rows need no shifting."""
        images, channels, height, width = x.shape
        px = self.patch_px
        down, across = height // px, width // px
        if down * across + 1 != self.tokens:
            raise ValueError(f"pictures of {height} x {width} px do not make {self.tokens - 1} patches")
        if images * self.tokens * max(self.mlp_width, 3 * self.width) >= MOST_ELEMENTS:
            raise ValueError(f"{images} pictures are too many at once")
        rows = torch.empty((images, self.tokens, channels * px * px), dtype=self.precision, device=x.device)
        rows[:, 0].zero_()
        cut = x.reshape(images, channels, down, px, across, px).permute(0, 2, 4, 1, 3, 5)
        rows[:, 1:].unflatten(1, (down, across)).unflatten(3, (channels, px, px)).copy_(cut)
        return rows.flatten(0, 1)

    def _forward(self, x: torch.Tensor, tape: _Tape | None) -> torch.Tensor:
        images, exact, weight = len(x), self._exact, self._weight
        patches = self._patches(x)
        normed = layer_norm.embed_norm(
            torch.mm(patches, weight["conv_proj.weight"].t()),
            exact["conv_proj.bias"],
            exact["class_token"],
            exact["encoder.pos_embedding"],
            exact[_layer(0, "ln_1.weight")],
            exact[_layer(0, "ln_1.bias")],
            eps=self.eps,
        )
        for at in range(self.layers):
            ends = at == self.layers - 1
            queries = 1 if ends else self.tokens
            first = normed
            qkv = torch.addmm(
                weight[_layer(at, "self_attention.in_proj_bias")],
                first.output,
                weight[_layer(at, "self_attention.in_proj_weight")].t(),
            )
            mixed, lse = attention_forward(
                qkv, images=images, tokens=self.tokens, queries=queries, heads=self.heads
            )
            second = layer_norm.add_norm(
                first.residual,
                torch.mm(mixed, weight[_layer(at, "self_attention.out_proj.weight")].t()),
                exact[_layer(at, "self_attention.out_proj.bias")],
                exact[_layer(at, "ln_2.weight")],
                exact[_layer(at, "ln_2.bias")],
                eps=self.eps,
                every=self.tokens if ends else 1,
            )
            linear = torch.mm(second.output, weight[_layer(at, "mlp.0.weight")].t())
            activated = gelu(linear, exact[_layer(at, "mlp.0.bias")])
            if tape is not None:
                tape.layers.append(_LayerTape(first, qkv, mixed, lse, second, linear, activated))
            following = "encoder.ln" if ends else _layer(at + 1, "ln_1")
            normed = layer_norm.add_norm(
                second.residual,
                torch.mm(activated, weight[_layer(at, "mlp.3.weight")].t()),
                exact[_layer(at, "mlp.3.bias")],
                exact[f"{following}.weight"],
                exact[f"{following}.bias"],
                eps=self.eps,
                dtype=torch.float32 if ends else None,
            )
        if tape is not None:
            tape.patches, tape.last = patches, normed
        return normed.output

    def _vector_sums(self) -> torch.Tensor:
        """Partial sums of the vectors' gradients, kept: each step writes all but the padding, which stays
        zero."""
        if self._sums is None or len(self._sums) != reductions.SUM_PROGRAMS:
            columns = self.flat.vectors.stop - self.flat.vectors.start
            self._sums = torch.zeros(
                (reductions.SUM_PROGRAMS, columns), dtype=torch.float32, device=self.flat.values.device
            )
        return self._sums

    def _backward(self, d_features: torch.Tensor, tape: _Tape) -> None:
        flat, weight, d_weight = self.flat, self._weight, self._d_weight
        images, device = len(d_features), d_features.device
        sums = self._vector_sums()
        biases = flat.attention_biases
        attention_sums = torch.zeros(
            (images * bias_sum_rows(self.tokens), biases.stop - biases.start),
            dtype=torch.float32,
            device=device,
        )

        def norm_backward(
            d_output: torch.Tensor,
            normed: Normed,
            norm: str,
            d_later: torch.Tensor | None,
            bias: str | None,
            every: int = 1,
        ) -> tuple[torch.Tensor, torch.Tensor]:
            gamma, beta = (
                sums[:, flat.columns(f"{norm}.{part}", flat.vectors)] for part in ("weight", "bias")
            )
            branch = None if bias is None else sums[:, flat.columns(bias, flat.vectors)]
            return layer_norm.norm_backward(
                *(d_output, normed, self._exact[f"{norm}.weight"], d_later, gamma, beta, branch),
                dtype=self.precision,
                every=every,
            )

        d_residual, d_branch = norm_backward(
            d_features, tape.last, "encoder.ln", None, _layer(self.layers - 1, "mlp.3.bias")
        )
        for at in reversed(range(self.layers)):
            kept = tape.layers.pop()
            ends = at == self.layers - 1
            torch.mm(d_branch.t(), kept.activated, out=d_weight[_layer(at, "mlp.3.weight")])
            d_linear = torch.mm(d_branch, weight[_layer(at, "mlp.3.weight")])
            up_bias = _layer(at, "mlp.0.bias")
            gelu_backward_(
                *(d_linear, kept.linear, self._exact[up_bias]), sums[:, flat.columns(up_bias, flat.vectors)]
            )
            torch.mm(d_linear.t(), kept.second.output, out=d_weight[_layer(at, "mlp.0.weight")])
            d_residual, d_branch = norm_backward(
                torch.mm(d_linear, weight[_layer(at, "mlp.0.weight")]),
                kept.second,
                _layer(at, "ln_2"),
                d_residual,
                _layer(at, "self_attention.out_proj.bias"),
            )
            out_weight = _layer(at, "self_attention.out_proj.weight")
            torch.mm(d_branch.t(), kept.mixed, out=d_weight[out_weight])
            d_qkv = attention_backward(
                kept.qkv,
                kept.mixed,
                torch.mm(d_branch, weight[out_weight]),
                kept.lse,
                attention_sums[:, flat.columns(_layer(at, "self_attention.in_proj_bias"), biases)],
                images=images,
                tokens=self.tokens,
                queries=1 if ends else self.tokens,
                heads=self.heads,
            )
            in_weight = _layer(at, "self_attention.in_proj_weight")
            torch.mm(d_qkv.t(), kept.first.output, out=d_weight[in_weight])
            d_residual, d_branch = norm_backward(
                torch.mm(d_qkv, weight[in_weight]),
                kept.first,
                _layer(at, "ln_1"),
                d_residual,
                _layer(at - 1, "mlp.3.bias") if at else None,
                self.tokens if ends else 1,
            )
        reductions.sum_columns(sums, flat.gradient[flat.vectors])
        reductions.sum_columns(attention_sums, flat.gradient[biases])
        torch.mm(d_branch.t(), tape.patches, out=d_weight["conv_proj.weight"])
        d_position = d_residual.view(images, self.tokens, self.width).sum(0)
        flat.view(flat.gradient, "encoder.pos_embedding")[0].copy_(d_position)
        flat.view(flat.gradient, "class_token")[0, 0].copy_(d_position[0])
        flat.view(flat.gradient, "conv_proj.bias").copy_(d_position[1:].sum(0))


class _Body(torch.autograd.Function):
    """The body among autograd's functions. The anchor needs a gradient, so that backward is called at all."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, x: torch.Tensor, body: TransformerBody) -> torch.Tensor:
        ctx.body, ctx.tape = body, _Tape()
        with torch.autocast(x.device.type, enabled=False):
            # Detached: the tape holds the output too, and must not hold the graph that holds the tape.
            return body._forward(x, ctx.tape).detach()

    @staticmethod
    def backward(ctx: Any, *d_features: torch.Tensor) -> tuple[None, None, None]:
        tape, ctx.tape = ctx.tape, None
        if tape is None:
            raise RuntimeError("a backward pass consumes what the forward pass stored: call the body again")
        with torch.no_grad(), torch.autocast(d_features[0].device.type, enabled=False):
            ctx.body._backward(d_features[0].float().contiguous(), tape)
        return None, None, None


def _layer(at: int, part: str) -> str:
    return f"encoder.layers.encoder_layer_{at}.{part}"


def _as_matrix(weight: torch.Tensor) -> torch.Tensor:
    """A convolution's weight as the product of patches reads it; others as they are."""
    return weight.flatten(1) if weight.dim() == 4 else weight
