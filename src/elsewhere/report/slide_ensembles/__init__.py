"""The parts of a page about many models and their ensembles on slides."""
