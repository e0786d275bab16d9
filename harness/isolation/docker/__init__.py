"""Runs in containers: the memory cap by a Docker Engine."""
