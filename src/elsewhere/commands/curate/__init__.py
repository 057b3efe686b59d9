"""`curate`: patches to features, clusters, an audit of the clusters, and training sets (LN-06 to LN-08, LN-23)."""

from elsewhere.commands.curate.inputs import read_cluster_numbers
from elsewhere.commands.curate.run import CurateInputs, CurateSettings, curate, estimate
from elsewhere.curation.clusters import ClusterSettings
from elsewhere.curation.sets import SetSettings

__all__ = [
    "ClusterSettings",
    "CurateInputs",
    "CurateSettings",
    "SetSettings",
    "curate",
    "estimate",
    "read_cluster_numbers",
]
