"""Google's push service, by its HTTP v1 API."""
