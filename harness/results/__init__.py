"""Results roots: records on disk, archives, imports, removal, and views of one run."""
