"""The whole system on one machine: the real template on an embedded AWS, and look-alike providers. For a checkout."""
