//go:build tools

// Package helm3 names the oldest Helm that the chart is for, beside the one of the module above, which is the newest.
package helm3

import _ "helm.sh/helm/v3/cmd/helm"
