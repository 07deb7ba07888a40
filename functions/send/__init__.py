"""Accepts notifications from other services, and withdraws them."""
