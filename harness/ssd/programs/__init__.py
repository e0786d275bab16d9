"""Programs that run inside a cap: they import nothing but the standard library."""
