"""Registers apps and devices, and sets recipients' preferences."""
