"""The device under the data: what it is, what fio gets out of it, and the SSD classes it can be limited to."""
