"""What a push is: devices, notifications, outcomes, and the attempt that joins them. No I/O but through ports."""
