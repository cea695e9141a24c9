"""The audit of a box: the rules of a consistent box, the check of a whole box against them, and the diagnosis.

audit = audit_box(box)
async for problem in audit: ...
for finding in await diagnose(box): ...
"""

from redbox.audit.box_audit import BoxAudit, all_problems, audit_box
from redbox.audit.diagnosis import diagnose, quick_errors
from redbox.audit.findings import Finding, Severity
from redbox.audit.repair import Mended, Repaired, repair
from redbox.audit.rules import RULES, Problem

__all__ = [
    "RULES", "BoxAudit", "Finding", "Mended", "Problem", "Repaired", "Severity", "all_problems", "audit_box",
    "diagnose", "quick_errors", "repair",
]  # fmt: skip
