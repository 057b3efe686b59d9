"""A vision transformer's training step, faster than autograd makes it, with every sum in a fixed order.

    body = TransformerBody(model.body.vit)
    adam = FlatAdam(body.flat, model.head.parameters(), rate=rate, max_norm=1.0)
    body.refresh(); adam.reset()                   # after weights were loaded
    loss_of(model.head(body(x))).backward(); adam.step()
    body.features(x)                               # without gradients

It needs triton and a GPU with bf16 (`available`); it imports without either.
"""

from elsewhere.training.fused_vit.adam import FlatAdam
from elsewhere.training.fused_vit.body import TransformerBody
from elsewhere.training.fused_vit.flat import FlatParameters
from elsewhere.training.fused_vit.lazy import available

__all__ = ["FlatAdam", "FlatParameters", "TransformerBody", "available"]
