"""One run from configuration to record, and many runs in turn; everything here is
outside the cap."""
