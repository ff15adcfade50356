"""The Grafana dashboard, written in Python; the JSON that the chart ships is made by `python -m deploy.dashboards`."""
