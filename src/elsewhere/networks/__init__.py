"""Networks, and where their weights come from."""

from __future__ import annotations

from elsewhere.networks.classifiers import NETWORKS, Classifier, build_network
from elsewhere.networks.weights import find_weights, load_state, weights_digest

__all__ = ["NETWORKS", "Classifier", "build_network", "find_weights", "load_state", "weights_digest"]
