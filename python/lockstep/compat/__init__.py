"""Packages compatible with those of other systems, to run their programs on Lockstep."""
