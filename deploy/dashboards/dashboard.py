"""The dashboard: its variables, and its rows from the whole cluster down to single slices."""

import itertools
import json
from pathlib import Path
from typing import Final

from grafana_foundation_sdk.builders import dashboard as made
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import (
    Dashboard,
    DashboardCursorSync,
    RowPanel,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

from deploy.dashboards import cards, health, largest, overview, quotas, slices, waiting
from deploy.dashboards.panels import SOURCE

FILE: Final = Path(__file__).parents[1] / "charts" / "aliquot" / "files" / "dashboards" / "aliquot.json"
ROWS: Final = (overview, waiting, slices, quotas, health)
OPENED: Final = (cards, largest)
"""Rows that look at each card or slice: closed at first, and asked for nothing while they are."""
EVERYTHING: Final = ".*"


def build() -> Dashboard:
    """Put it together."""
    whole = (
        made.Dashboard("Aliquot")
        .uid("aliquot")
        .description(
            "Parts of GPUs: what is there, what is promised, what is used, who waits, and what is wrong."
        )
        .tags(["aliquot", "gpu", "kubernetes"])
        .editable()
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .time("now-3h", "now")
        .refresh("1m")
        .with_variable(made.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    )
    for name, label, query in VARIABLES:
        whole = whole.with_variable(_choice(name, label, query))
    for row in ROWS:
        whole = whole.with_row(made.Row(row.TITLE))
        for panel in row.panels():
            whole = whole.with_panel(panel)
    for row in OPENED:
        closed = made.Row(row.TITLE).collapsed(True)
        for panel in row.panels():
            closed = closed.with_panel(panel)
        whole = whole.with_row(closed)
    return _numbered(whole.build())


def render() -> str:
    """The dashboard as JSON."""
    return json.dumps(build(), cls=JSONEncoder, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


NAMESPACED: Final = "aliquot_namespace_cards_promised|aliquot_scheduler_waiting_pods"
VARIABLES: Final = (
    ("model", "Card model", "label_values(aliquot_card_info, model)"),
    ("node", "Node", 'label_values(aliquot_card_info{model=~"$model"}, node)'),
    (
        "namespace",
        "Namespace",
        f'label_values({{__name__=~"{NAMESPACED}"}}, namespace)',
    ),
)


def _choice(name: str, label: str, query: str) -> made.QueryVariable:
    return (
        made.QueryVariable(name)
        .label(label)
        .datasource(SOURCE)
        .query(query)
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(EVERYTHING)
        .current(VariableOption(selected=True, text=["All"], value=["$__all"]))
    )


def _numbered(whole: Dashboard) -> Dashboard:
    """Panels have numbers, so that a link to one stays good."""
    numbers = itertools.count(1)
    for panel in whole.panels or ():
        panel.id_val = next(numbers)
        for inner in panel.panels if isinstance(panel, RowPanel) else ():
            inner.id_val = next(numbers)
    return whole
