"""Consumes the ``burial`` queue, and revives dead jobs for whoever invokes it with a filter."""
