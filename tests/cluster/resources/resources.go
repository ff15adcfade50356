//go:build tools

// Package resources names the projects whose custom resources the chart makes, so that go.mod and go.sum have their sources, in
// which the definitions lie.
package resources

import (
	_ "github.com/cert-manager/cert-manager/pkg/apis/certmanager"
	_ "github.com/prometheus-operator/prometheus-operator/pkg/versionutil"
)
