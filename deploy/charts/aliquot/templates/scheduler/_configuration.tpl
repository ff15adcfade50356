{{/*
kube-scheduler's side of the extender.
*/}}

{{/* The extender's entry, at a URL. Call with (list . "https://…" "directory of the certificates"). */}}
{{- define "aliquot.extender" -}}
{{- $root := index . 0 -}}
{{- $tls := index . 2 -}}
{{- $configuration := $root.Files.Get "files/scheduler/configuration.yaml" | fromYaml -}}
{{- $extender := first $configuration.extenders -}}
{{- $resources := list -}}
{{- range $extender.managedResources -}}
{{- if or (hasPrefix "aliquot.dev/" .name) $root.Values.dialects -}}
{{- $_ := set . "name" (regexReplaceAll "^aliquot[.]dev/" .name (printf "%s/" (include "aliquot.resourceDomain" $root.Values))) -}}
{{- $resources = append $resources . -}}
{{- end -}}
{{- end -}}
{{- $_ := set $extender "managedResources" $resources -}}
{{- $_ := set $extender "urlPrefix" (index . 1) -}}
{{- $_ := set $extender "enableHTTPS" true -}}
{{- $_ := set $extender "tlsConfig" (dict
      "caFile" (printf "%s/ca.crt" $tls) "certFile" (printf "%s/tls.crt" $tls) "keyFile" (printf "%s/tls.key" $tls)
      "serverName" (include "aliquot.schedulerHost" $root)) -}}
{{ toYaml $extender }}
{{- end -}}

{{/* The name in the extender's certificate: calls to 127.0.0.1 and to a replica's address expect it alike. */}}
{{- define "aliquot.schedulerHost" -}}
aliquot-scheduler.{{ .Release.Namespace }}.svc
{{- end -}}

{{/* The configuration of a kube-scheduler of its own, which has the extender beside it. */}}
{{- define "aliquot.schedulerConfiguration" -}}
{{- $configuration := .Files.Get "files/scheduler/configuration.yaml" | fromYaml -}}
{{- $_ := set $configuration.leaderElection "resourceNamespace" .Release.Namespace -}}
{{- $extender := include "aliquot.extender" (list . "https://127.0.0.1:9443" "/etc/aliquot/tls") | fromYaml -}}
{{- $_ := set $configuration "extenders" (list $extender) -}}
{{ toYaml $configuration }}
{{- end -}}

{{/* What is to be added to the configuration of a scheduler that is there already. */}}
{{- define "aliquot.schedulerSnippet" -}}
{{- $configuration := .Files.Get "files/scheduler/configuration.yaml" | fromYaml -}}
{{- $url := printf "https://%s:9443" (.Values.scheduler.service.clusterIP | default (include "aliquot.schedulerHost" .)) -}}
{{- $extender := include "aliquot.extender" (list . $url "/etc/kubernetes/aliquot") | fromYaml -}}
{{ toYaml (dict "percentageOfNodesToScore" $configuration.percentageOfNodesToScore
  "profiles" (concat (list (dict "schedulerName" "default-scheduler")) $configuration.profiles)
  "extenders" (list $extender)) }}
{{- end -}}
