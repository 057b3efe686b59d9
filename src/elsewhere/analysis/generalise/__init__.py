"""Many slide models at two domains: which generalise, by patient and by the study's test, and ensembles of them."""
