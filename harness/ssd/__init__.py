"""Block device under the data: its identity, its rates by fio, and the SSD classes that
it can be limited to."""
