"""Many models at two domains: the sections and the figures of `elsewhere generalise`."""
