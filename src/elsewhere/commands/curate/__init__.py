"""`curate`: patches to features, clusters, an audit of the clusters, and training sets."""
