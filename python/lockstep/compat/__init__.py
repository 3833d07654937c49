"""Interfaces of other systems' packages, so that programs written for them run on Lockstep."""
