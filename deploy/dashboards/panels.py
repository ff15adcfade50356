"""Panels as this dashboard has them: a title and a sentence for people, a unit, and queries with legends."""

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from grafana_foundation_sdk.builders import bargauge, common, prometheus, stat, table, timeseries
from grafana_foundation_sdk.builders.dashboard import ThresholdsConfig
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.common import (
    BarGaugeDisplayMode,
    BigValueColorMode,
    BigValueGraphMode,
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    StackingMode,
    TooltipDisplayMode,
    VizOrientation,
)
from grafana_foundation_sdk.models.dashboard import (
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    Panel,
    Threshold,
    ThresholdsMode,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE: Final = DataSourceRef("prometheus", "${datasource}")
MODELS: Final = 'node=~"$node", model=~"$model"'
"""Of what is recorded by node and model."""
NODES: Final = 'node=~"$node"'
NAMESPACES: Final = 'namespace=~"$namespace"'
SLICES: Final = f"{NAMESPACES}, {NODES}"
WINDOW: Final = "$__rate_interval"

HALF, THIRD, QUARTER, EIGHTH, WHOLE = 12, 8, 6, 3, 24
HIGH, LOW = 8, 4
FILL: Final = 10
GREEN, ORANGE, RED = "green", "orange", "red"

Made: TypeAlias = Builder[Panel]


class Unit(StrEnum):
    """Grafana's names of the units that our metrics are in."""

    BYTES = "bytes"
    RATIO = "percentunit"
    SECONDS = "s"
    NUMBER = "short"
    PER_SECOND = "cps"
    FLAG = "bool_yes_no"


@dataclass(frozen=True)
class Query:
    """An expression, and the name of what it gives."""

    expr: str
    legend: str


@dataclass(frozen=True)
class Column:
    """A column of figures: its heading, an expression that keeps the table's labels, and its unit."""

    heading: str
    expr: str
    unit: Unit


Scale: TypeAlias = Sequence[tuple[float | None, str]]
"""Colours, each from a figure on; the first from the least."""
PLAIN: Final[Scale] = ((None, GREEN),)
NEARLY_ALL: Final[Scale] = ((None, GREEN), (0.85, ORANGE), (0.95, RED))
NONE_BETTER: Final[Scale] = ((None, GREEN), (1, ORANGE))
ALL_BETTER: Final[Scale] = ((None, RED), (0.5, ORANGE), (1, GREEN))
JUST_ONE: Final[Scale] = ((None, RED), (1, GREEN), (2, RED))


def number(title: str, about: str, unit: Unit, expr: str, scale: Scale = PLAIN) -> Made:
    """One large figure, and how it came to be."""
    panel = (
        stat.Panel()
        .title(title)
        .description(about)
        .datasource(SOURCE)
        .unit(unit)
        .span(EIGHTH)
        .height(LOW)
        .color_mode(BigValueColorMode.VALUE)
        .graph_mode(BigValueGraphMode.AREA)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .thresholds(_coloured(scale))
        .with_target(_over_time(Query(expr, title), "A"))
    )
    return panel if unit is not Unit.RATIO else panel.min(0).max(1)


def graph(
    title: str,
    about: str,
    unit: Unit,
    *queries: Query,
    span: int = HALF,
    stacked: bool = False,
    none: str = "",
) -> Made:
    """Lines over time; `none` is what no line at all means."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(about)
        .datasource(SOURCE)
        .unit(unit)
        .span(span)
        .height(HIGH)
        .min(0)
        .line_width(1)
        .fill_opacity(4 * FILL if stacked else FILL)
        .legend(_legend())
        .tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING))
    )
    if stacked:
        panel = panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL).group("A"))
    if none:
        panel = panel.no_value(none)
    for ref, query in zip(string.ascii_uppercase, queries, strict=False):
        panel = panel.with_target(_over_time(query, ref))
    return panel


def bars(title: str, about: str, unit: Unit, query: Query) -> Made:
    """A bar for each of a few things, as they are now."""
    return (
        bargauge.Panel()
        .title(title)
        .description(about)
        .datasource(SOURCE)
        .unit(unit)
        .min(0)
        .max(1)
        .span(HALF)
        .height(HIGH)
        .display_mode(BarGaugeDisplayMode.BASIC)
        .orientation(VizOrientation.HORIZONTAL)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .thresholds(_coloured(NEARLY_ALL))
        .with_target(_now(query.expr, "A").legend_format(query.legend).format(PromQueryFormat.TIME_SERIES))
    )


def rows(
    title: str,
    about: str,
    labels: Mapping[str, str],
    columns: Sequence[Column],
    *,
    span: int = WHOLE,
    none: str = "",
) -> Made:
    """A table of what is so now.

    Args:
        title: Its title.
        about: What it says.
        labels: The labels that tell rows apart, and their headings.
        columns: The figures, at least two.
        span: Its width.
        none: What no row at all means.
    """
    refs = dict(zip(string.ascii_uppercase, columns, strict=False))
    names = dict(labels) | {f"Value #{ref}": column.heading for ref, column in refs.items()}
    panel = (
        table.Panel()
        .title(title)
        .description(about)
        .datasource(SOURCE)
        .span(span)
        .height(HIGH + 2)
        .filterable(True)
        .with_transformation(DataTransformerConfig(id_val="merge", options={}))
        .with_transformation(_organized(names))
        .sort_by([common.TableSortByFieldState().display_name(columns[0].heading).desc(True)])
    )
    if none:
        panel = panel.no_value(none)
    for ref, column in refs.items():
        panel = panel.with_target(_now(column.expr, ref).format(PromQueryFormat.TABLE))
        panel = panel.override_by_name(column.heading, [DynamicConfigValue("unit", column.unit)])
    return panel


def _organized(names: Mapping[str, str]) -> DataTransformerConfig:
    options = {
        "excludeByName": {"Time": True},
        "includeByName": {},
        "indexByName": {name: index for index, name in enumerate(names)},
        "renameByName": dict(names),
    }
    return DataTransformerConfig(id_val="organize", options=options)


def _over_time(query: Query, ref: str) -> prometheus.Dataquery:
    return (
        prometheus.Dataquery()
        .expr(query.expr)
        .legend_format(query.legend)
        .ref_id(ref)
        .range()
        .datasource(SOURCE)
    )


def _now(expr: str, ref: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().expr(expr).ref_id(ref).instant().datasource(SOURCE)


def _legend() -> common.VizLegendOptions:
    return (
        common.VizLegendOptions()
        .show_legend(True)
        .display_mode(LegendDisplayMode.TABLE)
        .placement(LegendPlacement.BOTTOM)
        .calcs(["lastNotNull", "max"])
    )


def _coloured(scale: Scale) -> ThresholdsConfig:
    steps = [Threshold(value, color) for value, color in scale]
    return ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)
