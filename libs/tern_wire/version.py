"""The version of the release, defined only here. Both distributions are built with it."""

VERSION = "0.1.0"
