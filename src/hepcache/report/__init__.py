"""What a run did: record, summary, figures, HTML."""

from hepcache.report.advice import Advice, advise
from hepcache.report.cycles import CycleReport
from hepcache.report.record import RunRecord
from hepcache.report.summary import HostSummary, Summary, summarise

__all__ = ["Advice", "CycleReport", "HostSummary", "RunRecord", "Summary", "advise", "summarise"]
