"""Works the hints of the ``work`` and ``bulk`` queues."""
