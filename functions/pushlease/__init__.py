"""Durable push notifications on AWS: the library that the functions share."""
