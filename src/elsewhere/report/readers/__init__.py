"""Reader studies: the sections and the figures of a study with several readers."""
