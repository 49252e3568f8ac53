"""What a run did and why: record, summary, explanation, forecast, figures, HTML."""

from hepcache.report.compare import CycleComparison
from hepcache.report.explain import Cost
from hepcache.report.forecast import Check, Forecast, forecast
from hepcache.report.misses import REASONS, Miss, Reason
from hepcache.report.scenario import WhatIf, what_if
from hepcache.report.summary import Advice, HostSummary, Summary, advise, summarise
from hepcache.report.views import Comparison, CycleReport, Explanation, RunRecord, explain

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
