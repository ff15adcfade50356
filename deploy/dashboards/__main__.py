"""Writes the dashboard's JSON to where the chart has it."""

from deploy.dashboards.dashboard import FILE, render

FILE.write_text(render())
