"""One sweep on many hosts, each with a disk of its own (a storage vendor's case): placed by label, collected here."""
