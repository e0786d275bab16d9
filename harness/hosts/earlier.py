"""Records of earlier calls, read once for all labels of a sweep."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from harness.progress import Notice
from harness.records.hosts import host_fingerprint
from harness.records.record import Record, RunConfig
from harness.results import store as results
from harness.run.sweep import worth_keeping


class Earlier:
    """Records in a results root that need not be made again (`worth_keeping`), by host
    and configuration; `retry` makes those again that other programs spoilt."""

    def __init__(self, results_root: Path, *, retry: bool, progress: Notice) -> None:
        found = results.records(results_root, progress=progress)
        self._records: dict[tuple[str, str, int], list[Record]] = {}
        for record in worth_keeping(found, retry=retry):
            host = host_fingerprint(record.environment)
            key = (host, record.config_hash, record.config.round)
            self._records.setdefault(key, []).append(record)

    def of(self, config: RunConfig, hosts: Collection[str]) -> list[Record]:
        """Return the records of a configuration on hosts of these fingerprints."""
        digest = config.config_hash
        keys = [(host, digest, config.round) for host in sorted(hosts)]
        return [record for key in keys for record in self._records.get(key, ())]
