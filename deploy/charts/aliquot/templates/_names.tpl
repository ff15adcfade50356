{{/*
Names, labels and images. There is one Aliquot in a cluster (its CRDs, its resources and its webhook are the cluster's),
so the names of its objects are fixed and do not follow the release's.
*/}}

{{/* Labels of every object. Call with (list . "component"). */}}
{{- define "aliquot.labels" -}}
{{- $root := index . 0 -}}
{{ include "aliquot.selector" . }}
app.kubernetes.io/part-of: aliquot
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* The labels by which a component's pods are selected; they never change. Call with (list . "component"). */}}
{{- define "aliquot.selector" -}}
app.kubernetes.io/name: aliquot
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* The user names of the service accounts, as policies and audit logs see them. */}}
{{- define "aliquot.agentUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:aliquot-agent
{{- end -}}
{{- define "aliquot.schedulerUser" -}}
system:serviceaccount:{{ .Release.Namespace }}:aliquot-scheduler
{{- end -}}

{{/* An image of ours: a digest beats a tag. Call with (list . .Values.webhook.image). */}}
{{- define "aliquot.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- $registry := $root.Values.image.registry | trimSuffix "/" -}}
{{- $name := ternary (printf "%s/%s" $registry $image.repository) $image.repository (ne $registry "") -}}
{{- if $image.digest -}}
{{ $name }}@{{ $image.digest }}
{{- else -}}
{{ $name }}:{{ $image.tag | default $root.Values.image.tag | default $root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* kube-scheduler's image: of the cluster's own version, without what a vendor has put behind it. */}}
{{- define "aliquot.kubeSchedulerImage" -}}
{{- $image := .Values.scheduler.kubeScheduler.image -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{- $version := semver .Capabilities.KubeVersion.Version -}}
{{ $image.repository }}:{{ $image.tag | default (printf "v%d.%d.%d" $version.Major $version.Minor $version.Patch) }}
{{- end -}}
{{- end -}}
