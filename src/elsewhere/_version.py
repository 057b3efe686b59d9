"""The version of the package: it imports nothing, so that every module can have it."""

__version__ = "0.2.0.dev0"
