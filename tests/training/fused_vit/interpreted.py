"""Run by the tests of this folder in a process of its own: every kernel in Triton's interpreter, on a CPU.

Prints one JSON object: by kind and check, how far the kernel lies from plain torch in single precision, relative
to the largest number there, and whether a second run gave the same bits.
"""

from __future__ import annotations

import copy
import json
import os
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import numpy as np
import torch
from torch.nn import functional

from elsewhere.training.fused_vit import adam, attention, layer_norm, reductions
from elsewhere.training.fused_vit.adam import FlatAdam
from elsewhere.training.fused_vit.body import TransformerBody
from elsewhere.training.fused_vit.gelu import gelu, gelu_backward_

EPS = 1e-6
WIDTH, ROWS = 96, 23
"""Neither is a multiple of a block."""


def mend_interpreter() -> None:
    """The interpreter multiplies bf16 matrices as if their bits were whole numbers."""
    import triton.language as tl
    from triton.runtime import interpreter

    plain = interpreter.InterpreterBuilder.create_dot

    def widened(handle: Any) -> Any:
        if handle.dtype.scalar != tl.bfloat16:
            return handle
        return interpreter.TensorHandle((handle.data.astype(np.uint32) << 16).view(np.float32), tl.float32)

    def create_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return plain(self, widened(a), widened(b), *rest)

    interpreter.InterpreterBuilder.create_dot = create_dot


def small_blocks() -> None:
    """So that small inputs have full blocks, a last block, and programs with several and with no rows."""
    for name, own, other in (("forward", 32, 16), ("queries", 32, 16), ("keys", 16, 32)):
        attention.BLOCKS[name] = attention.Blocks(own=own, other=other, warps=4, stages=1)
    reductions.TILES.update(
        norm=reductions.Tile(rows=2, warps=1),
        norm_backward=reductions.Tile(rows=2, warps=1),
        gelu=reductions.Tile(rows=4, columns=64, warps=1),
        gelu_backward=reductions.Tile(rows=4, columns=64, warps=1),
        sum_columns=reductions.Tile(rows=4, columns=64, warps=1),
    )
    reductions.SUM_PROGRAMS = 5
    adam.NORM_PROGRAMS, adam.NORM_BLOCK, adam.ADAM_BLOCK = 3, 4096, 8192


def large_blocks() -> None:
    """Few programs: the interpreter runs them one after the other. The checks of single kernels have small blocks."""
    for name, block in attention.BLOCKS.items():
        attention.BLOCKS[name] = replace(block, own=64, other=64)
    reductions.TILES.update({name: replace(tile, rows=64) for name, tile in reductions.TILES.items()})
    reductions.SUM_PROGRAMS, adam.NORM_PROGRAMS = 2, 2
    adam.NORM_BLOCK, adam.ADAM_BLOCK = 16_384, 32_768


def far(found: torch.Tensor, expected: torch.Tensor) -> float:
    expected = expected.detach().float()
    if found.shape != expected.shape:
        return float("inf")
    return float((found.detach().float() - expected).abs().max() / expected.abs().max())


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


def check_attention(precision: torch.dtype, queries: int) -> dict[str, float]:
    images, tokens, heads, head = 2, 53, 2, 64
    width = heads * head
    shape = {"images": images, "tokens": tokens, "queries": queries, "heads": heads}
    qkv = (2 * draw(images * tokens, 3 * width)).to(precision)
    d_mixed = draw(images * queries, width).to(precision)
    leaf = qkv.float().requires_grad_()
    q, k, v = leaf.view(images, tokens, 3, heads, head).permute(2, 0, 3, 1, 4)
    expected = (
        functional.scaled_dot_product_attention(q[:, :, :queries], k, v).transpose(1, 2).reshape(-1, width)
    )
    expected.backward(d_mixed.float())
    sums = torch.zeros(images * attention.bias_sum_rows(tokens), 3 * width)
    mixed, lse = attention.attention_forward(qkv, **shape)
    d_qkv = attention.attention_backward(qkv, mixed, d_mixed, lse, sums, **shape)
    again = attention.attention_backward(qkv, mixed, d_mixed, lse, torch.zeros_like(sums), **shape)
    assert leaf.grad is not None
    return {
        "mixed": far(mixed, expected),
        "d_qkv": far(d_qkv, leaf.grad),
        "d_bias": far(sums.sum(0), leaf.grad.sum(0)),
        "other bits": float(not torch.equal(d_qkv, again)),
    }


def check_norm(precision: torch.dtype, every: int) -> dict[str, float]:
    """The sum and its norm, `every` rows of the stream for a row of the branch; backward with a later gradient."""
    before = draw(ROWS * every, WIDTH).requires_grad_()
    branch = draw(ROWS, WIDTH).to(precision)
    bias, gamma, beta = (draw(WIDTH).requires_grad_() for _ in range(3))
    d_output, d_later = draw(ROWS, WIDTH).to(precision), draw(ROWS, WIDTH)
    leaf = branch.float().requires_grad_()
    stream = before[::every] + leaf + bias
    normal = functional.layer_norm(stream, (WIDTH,), gamma, beta, EPS)
    (normal * d_output.float() + stream * d_later).sum().backward()
    made = layer_norm.add_norm(before, branch, bias, gamma, beta, eps=EPS, every=every)
    sums = torch.full((reductions.SUM_PROGRAMS, 3 * WIDTH), float("nan"))
    parts = [sums[:, at : at + WIDTH] for at in (0, WIDTH, 2 * WIDTH)]
    d_residual, d_branch = layer_norm.norm_backward(d_output, made, gamma, d_later, *parts, dtype=precision)
    total = torch.empty(3 * WIDTH)
    reductions.sum_columns(sums, total)
    grads = [p.grad for p in (gamma, beta, bias)]
    assert leaf.grad is not None
    return {
        "residual": far(made.residual, stream),
        "output": far(made.output, normal),
        "d_residual": far(d_residual, leaf.grad),
        "d_branch": far(d_branch, leaf.grad),
        "sums": max(far(total.view(3, -1)[at], grad) for at, grad in enumerate(grads) if grad is not None),
    }


def check_class_gradient() -> dict[str, float]:
    """A later gradient that only the first of every few rows has, and a norm without one."""
    every, rows = 4, 20
    stream = draw(rows, WIDTH).requires_grad_()
    gamma, beta = draw(WIDTH), draw(WIDTH)
    d_output, d_later = draw(rows, WIDTH), draw(rows // every, WIDTH)
    normal = functional.layer_norm(stream, (WIDTH,), gamma, beta, EPS)
    (alone,) = torch.autograd.grad((normal * d_output).sum(), stream, retain_graph=True)
    (both,) = torch.autograd.grad((normal * d_output).sum() + (stream[::every] * d_later).sum(), stream)
    zeros = torch.zeros(rows, WIDTH)
    made = layer_norm.add_norm(stream, zeros, torch.zeros(WIDTH), gamma, beta, eps=EPS)
    parts = [torch.empty(reductions.SUM_PROGRAMS, WIDTH) for _ in range(2)]
    found, _ = layer_norm.norm_backward(
        d_output, made, gamma, d_later, *parts, None, dtype=torch.float32, every=every
    )
    without, _ = layer_norm.norm_backward(d_output, made, gamma, None, *parts, None, dtype=torch.float32)
    return {"class rows": far(found, both), "none": far(without, alone)}


def check_gelu(precision: torch.dtype) -> dict[str, float]:
    width = 3 * WIDTH
    linear, bias = (2 * draw(ROWS, width)).to(precision), draw(width).requires_grad_()
    gradient = draw(ROWS, width).to(precision)
    leaf = linear.float().requires_grad_()
    expected = functional.gelu(leaf + bias)
    expected.backward(gradient.float())
    found = gelu(linear, bias)
    sums = torch.full((reductions.SUM_PROGRAMS, width), float("nan"))
    gelu_backward_(gradient, linear, bias, sums)
    total = torch.empty(width)
    reductions.sum_columns(sums, total)
    assert leaf.grad is not None and bias.grad is not None
    return {
        "output": far(found, expected),
        "d_linear": far(gradient, leaf.grad),
        "d_bias": far(total, bias.grad),
    }


def network(layers: int = 2) -> torch.nn.Module:
    from torchvision.models.vision_transformer import VisionTransformer

    vit = VisionTransformer(
        image_size=40, patch_size=8, num_layers=layers, num_heads=2, hidden_dim=128, mlp_dim=160
    )
    vit.heads = torch.nn.Identity()  # type: ignore[assignment]
    with torch.no_grad():
        for parameter in vit.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return vit


def check_body(precision: torch.dtype, layers: int) -> dict[str, float]:
    vit = network(layers)
    plain = copy.deepcopy(vit)
    body = TransformerBody(vit, precision=precision)
    x, weight = draw(2, 3, 40, 40), draw(2, 128)
    found = body(x)
    (found * weight).sum().backward()
    expected = plain(x)
    (expected * weight).sum().backward()
    gradient = body.flat.gradient.clone()
    result = {"features": far(found, expected), "only looking": far(body.features(x), found)}
    for name, parameter in plain.named_parameters():
        assert parameter.grad is not None
        result[name] = far(body.flat.view(gradient, name), parameter.grad)
    body.flat.gradient.fill_(7.0)
    (body(x) * weight).sum().backward()
    result["other bits"] = float(not torch.equal(gradient, body.flat.gradient))
    result["own gradients"] = float(any(p.grad is not None for p in vit.parameters()))
    return result


def check_state() -> dict[str, float]:
    """Names and shapes stay; loaded weights count after `refresh`; a dropped result frees what it kept."""
    vit, other = network(1), network(1)
    before = {name: tuple(value.shape) for name, value in vit.state_dict().items()}
    body = TransformerBody(vit, precision=torch.float32)
    kept = {name: tuple(value.shape) for name, value in vit.state_dict().items()} == before
    for name, value in vit.state_dict().items():
        value.copy_(other.state_dict()[name])
    x = draw(1, 3, 40, 40)
    stale = far(body.features(x), other(x))
    body.refresh()
    looked = body(x)
    tape = weakref.ref(looked.grad_fn.tape)
    del looked
    return {
        "memory kept": float(tape() is not None),
        "names": float(not kept),
        "loaded": far(body.features(x), other(x)),
        "stale counts": float(stale < 1e-3),
    }


def check_adam(max_norm: float, weight_decay: float, eps: float) -> dict[str, float]:
    """Steps beside torch's with the same gradients, and again after a reset.

    Where a clipped gradient and the decay nearly cancel, a tiny `eps` would turn rounding into whole steps.
    """
    vit, head = network(1), torch.nn.Linear(128, 2)
    plain_vit, plain_head = copy.deepcopy(vit), copy.deepcopy(head)
    body = TransformerBody(vit, precision=torch.bfloat16)
    rate = torch.tensor(3e-3)
    rule = {"weight_decay": weight_decay, "eps": eps}
    flat = FlatAdam(body.flat, list(head.parameters()), rate=rate, max_norm=max_norm, **rule)
    both = [*plain_vit.parameters(), *plain_head.parameters()]
    result: dict[str, float] = {}
    for count in (3, 1):
        flat.reset()
        reference = torch.optim.Adam(both, lr=float(rate), **rule)
        for _ in range(count):
            for name, parameter in plain_vit.named_parameters():
                view = body.flat.view(body.flat.gradient, name)
                view.copy_(0.1 * torch.randn_like(parameter))
                parameter.grad = view.float()
            for parameter, mirrored in zip(head.parameters(), plain_head.parameters(), strict=True):
                parameter.grad = torch.randn_like(parameter)
                mirrored.grad = parameter.grad.clone()
            norm = torch.nn.utils.clip_grad_norm_(both, max_norm)
            reference.step()
            flat.step()
            flat.zero_grad()
        result[f"norm after {count}"] = far(flat.norm, norm)
        pairs = zip([*vit.parameters(), *head.parameters()], both, strict=True)
        result[f"values after {count}"] = max(far(own, theirs) for own, theirs in pairs)
    ratio = body.flat.copy.float() / body.flat.values
    result["copy"] = float(not bool(((ratio - 1).abs() <= 2**-7)[body.flat.values != 0].all()))
    result["gradients kept"] = float(any(p.grad is not None for p in head.parameters()))
    return result


def main() -> None:
    torch.set_num_threads(2)
    mend_interpreter()
    single, half = torch.float32, torch.bfloat16
    small_blocks()
    kernels = {
        "attention single": lambda: check_attention(single, 53),
        "attention half": lambda: check_attention(half, 53),
        "attention class single": lambda: check_attention(single, 1),
        "norm single": lambda: check_norm(single, 1),
        "norm half": lambda: check_norm(half, 1),
        "norm class single": lambda: check_norm(single, 3),
        "class gradient single": check_class_gradient,
        "gelu single": lambda: check_gelu(single),
        "gelu half": lambda: check_gelu(half),
        "adam single": lambda: check_adam(1.0, 0.01, 1e-5),
        "adam unclipped single": lambda: check_adam(1e6, 0.0, 1e-8),
    }
    told = {"kernels": run(kernels)}
    large_blocks()
    body = {
        "body single": lambda: check_body(single, 2),
        "body half": lambda: check_body(half, 2),
        "body of one layer single": lambda: check_body(single, 1),
        "state single": check_state,
    }
    told["body"] = run(body)
    print(json.dumps(told))


def run(checks: dict[str, Callable[[], dict[str, float]]]) -> dict[str, dict[str, float]]:
    told = {}
    for name, check in checks.items():
        torch.manual_seed(1)
        told[name] = check()
    return told


if __name__ == "__main__":
    main()
