"""Run by test_in_training.py in a process of its own: a tiny vision transformer trained both ways, on a CPU."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from elsewhere.networks import classifiers as networks
from elsewhere.training import program, updates
from elsewhere.training.transformer import adam, kernels
from worlds import make_unit, make_work, train


class TinyTransformer(torch.nn.Module):
    def __init__(self, size_px: int) -> None:
        super().__init__()
        from torchvision.models import VisionTransformer

        self.vit = VisionTransformer(size_px, 8, num_layers=2, num_heads=2, hidden_dim=32, mlp_dim=64)
        self.vit.heads = torch.nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.vit(x)


def main() -> None:
    torch.set_num_threads(1)
    # Few and large programs: the interpreter runs them one after the other.
    kernels.SUM_PROGRAMS, adam.NORM_PROGRAMS = 2, 2
    adam.NORM_BLOCK, adam.ADAM_BLOCK = 16_384, 32_768
    kernels.TILES = {name: replace(tile, rows=64) for name, tile in kernels.TILES.items()}
    entry = replace(networks.NETWORKS["vit-b-16"], body=TinyTransformer, features=32, size_px=32)
    networks.NETWORKS["tiny-vit"] = entry  # type: ignore[index]
    bodies: list[object] = []

    def exact(vit: torch.nn.Module) -> object:
        bodies.append(real(vit, precision=torch.float32))
        return bodies[-1]

    real = updates.TransformerBody
    updates.TransformerBody = exact  # type: ignore[assignment,misc]
    work = make_work(n=32)
    settings = {"network": "tiny-vit", "epochs": 2, "batch": 8, "learning_rate": 1e-3, "gradient_norm": 0.5}
    units = [
        make_unit(work, seed=seed, parts=(16, 24), keep_weights=seed == 1, **settings) for seed in (1, 2)
    ]
    told = {}
    for way in ("plain", "written out"):
        program.available = lambda device, way=way: way == "written out"
        done, failures = train(units, work)
        told[way] = [
            {
                "logits": done[unit.key].logits.tolist(),
                "losses": [entry["train_loss"] for entry in done[unit.key].history],
                "checks": [entry["validation_loss"] for entry in done[unit.key].history],
                "norm": sum(float(v.norm()) for v in (done[unit.key].weights or {}).values()),
            }
            for unit in units
        ]
        assert not failures
    print(json.dumps({**told, "bodies": len(bodies)}))


if __name__ == "__main__":
    main()
