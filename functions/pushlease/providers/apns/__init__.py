"""Apple's push service."""
