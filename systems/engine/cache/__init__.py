"""Caches of feature rows and neighbour lists, and the policies that fill them."""
