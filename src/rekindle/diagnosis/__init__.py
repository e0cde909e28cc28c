"""Behind `rk.audit`: readings, rules that turn them into findings, and the audit itself."""

from rekindle.diagnosis.auditing import Audit, audit
from rekindle.diagnosis.findings import Finding

__all__ = ["Audit", "Finding", "audit"]
