"""The package's version, read by the build and by ``fedqcl --version``."""

__version__ = "0.1.0"
