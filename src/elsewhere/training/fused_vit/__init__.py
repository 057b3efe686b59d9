"""A vision transformer's training step, faster than autograd makes it, with every sum in a fixed order.

    step = FusedTransformerStep(model.body.vit, model.head.parameters(), gradient_norm=1.0, weight_decay=0.0)
    step.reset()                                   # after weights were loaded
    step.set_rate(1e-4)
    loss_of(model.head(step.features(x))).backward()
    step.step()
    step.inference_features(x)

It needs triton and a GPU with bf16 (`available`); it imports without either, and nothing of Elsewhere. When it is used
and how it is tested: docs/explanation/fused-transformer.md.
"""

from elsewhere.training.fused_vit.lazy import available
from elsewhere.training.fused_vit.step import FusedTransformerStep

__all__ = ["FusedTransformerStep", "available"]
