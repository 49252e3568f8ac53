"""What a run did and why: record, summary, explanation, forecast, figures, HTML."""

from hepcache.report.advice import Advice, advise
from hepcache.report.compare import Comparison, CycleComparison
from hepcache.report.cycles import CycleReport
from hepcache.report.explain import Cost, Explanation, explain
from hepcache.report.forecast import Check, Forecast, forecast
from hepcache.report.reasons import REASONS, Miss, Reason
from hepcache.report.record import RunRecord
from hepcache.report.summary import HostSummary, Summary, summarise
from hepcache.report.what_if import WhatIf, what_if

__all__ = [
    "REASONS",
    "Advice",
    "Check",
    "Comparison",
    "Cost",
    "CycleComparison",
    "CycleReport",
    "Explanation",
    "Forecast",
    "HostSummary",
    "Miss",
    "Reason",
    "RunRecord",
    "Summary",
    "WhatIf",
    "advise",
    "explain",
    "forecast",
    "summarise",
    "what_if",
]
