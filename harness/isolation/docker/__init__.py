"""Runs in containers: the memory cap by a Docker Engine, and foreign systems that are images."""
