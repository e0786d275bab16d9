"""One sweep on many hosts, each with its own disk (a storage vendor's case): placed by
label, collected here."""
