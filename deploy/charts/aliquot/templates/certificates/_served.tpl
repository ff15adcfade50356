{{/* The services that have a certificate, as a JSON list. */}}
{{- define "aliquot.served" -}}
{{- $served := list -}}
{{- range list "agent" "scheduler" "webhook" -}}
{{- if (index $.Values .).enabled -}}
{{- $served = append $served . -}}
{{- end -}}
{{- end -}}
{{ toJson $served }}
{{- end -}}

{{/* The same with the keeper of certificates, who keeps one for itself. */}}
{{- define "aliquot.kept" -}}
{{ toJson (append (include "aliquot.served" . | fromJsonArray) "certs") }}
{{- end -}}

{{/* The Secrets of a CA of our own, of all of these, and of Prometheus, which is a client alone, as a JSON list. */}}
{{- define "aliquot.keptSecrets" -}}
{{- $names := list "aliquot-ca" -}}
{{- range include "aliquot.kept" . | fromJsonArray -}}
{{- $names = append $names (printf "aliquot-%s-tls" .) -}}
{{- end -}}
{{- if .Values.monitoring.serviceMonitors.enabled -}}
{{- $names = append $names "aliquot-prometheus-tls" -}}
{{- end -}}
{{ toJson $names }}
{{- end -}}

{{/* Whether the keeper may make Secrets: only where the policy that says which ones denies others. Empty: it may not. */}}
{{- define "aliquot.keeperMakesSecrets" -}}
{{- if and .Values.policies.enabled (has "Deny" .Values.policies.validationActions) -}}
yes
{{- end -}}
{{- end -}}
